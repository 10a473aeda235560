"""Tests of the shadow."""
