"""Fits step-time models to measurements, and reports their prediction errors."""
