"""Tests of windtunnel.cli."""
