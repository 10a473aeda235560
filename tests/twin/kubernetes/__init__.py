"""Tests of windtunnel.twin.kubernetes."""
