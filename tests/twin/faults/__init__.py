"""Tests of faults in runs."""
