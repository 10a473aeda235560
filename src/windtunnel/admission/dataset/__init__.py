"""Scheduling of a dataset's cells: dependencies between columns, row groups, retries."""
