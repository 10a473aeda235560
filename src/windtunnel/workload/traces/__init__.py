"""Traces of requests, in and out: one neutral record, a reader and a writer for each format."""
