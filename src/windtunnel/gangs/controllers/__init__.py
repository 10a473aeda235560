"""The controllers of the gang layer: each reads the cache and returns commands with reasons."""
