"""Tests of windtunnel.core.statistics."""
