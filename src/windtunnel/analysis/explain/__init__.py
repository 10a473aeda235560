"""Explains a finished run: slow requests, decisions and moments, with their causes."""
