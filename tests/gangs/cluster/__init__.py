"""Tests of windtunnel.gangs.cluster."""
