"""Tests of Windtunnel; the folders mirror src/windtunnel."""
