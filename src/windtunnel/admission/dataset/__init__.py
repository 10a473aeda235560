"""Columns that need columns, over rows in groups: what is ready, what goes, what is retried."""
