"""Tests of windtunnel.core."""
