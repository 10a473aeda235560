"""Tests of windtunnel.core.system."""
