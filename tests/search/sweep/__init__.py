"""Tests of `windtunnel.search.sweep`."""
