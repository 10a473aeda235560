"""Whole scenarios, from the file to the result."""
