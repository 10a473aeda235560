"""Reads and writes traces of requests: one neutral record, and a reader and writer per format."""
