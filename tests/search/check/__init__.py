"""Tests of `windtunnel check`, beside those of the command."""
