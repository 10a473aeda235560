"""Tests of `windtunnel.search.execution`."""
