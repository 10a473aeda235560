"""Scenario files: from YAML text to a plan with every default filled in."""
