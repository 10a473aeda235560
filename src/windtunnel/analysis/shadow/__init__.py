"""What a shadow computes: recent traffic, forecasts and how wrong earlier ones were."""
