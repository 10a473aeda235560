"""Settings: declared once, read from YAML with line numbers, checked, overridden, documented."""
