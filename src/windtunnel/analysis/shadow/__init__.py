"""Shadow forecasts: recent traffic, forecasts, and the accuracy of earlier ones."""
