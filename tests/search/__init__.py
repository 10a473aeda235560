"""Tests of what runs a scenario many times."""
