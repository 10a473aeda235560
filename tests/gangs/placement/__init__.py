"""Tests of windtunnel.gangs.placement."""
