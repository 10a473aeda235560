"""Tests of `windtunnel.admission.queues`."""
