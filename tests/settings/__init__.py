"""Tests of how settings are declared, read and drawn."""
