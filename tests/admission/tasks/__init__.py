"""Tests of `windtunnel.admission.tasks`."""
