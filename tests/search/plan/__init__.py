"""Tests of `windtunnel.search.plan`."""
