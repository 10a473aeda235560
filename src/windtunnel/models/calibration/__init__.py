"""Fitting step-time models to measurements, and how far their predictions are off."""
