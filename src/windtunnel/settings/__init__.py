"""Settings: declared once, read from YAML with line numbers, overridden, checked, documented."""
