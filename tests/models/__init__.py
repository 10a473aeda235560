"""Tests of models, accelerators and step times."""
