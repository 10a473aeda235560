"""Tests of `windtunnel.admission.requests`."""
