"""Tests of windtunnel.twin."""
