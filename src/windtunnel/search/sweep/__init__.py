"""One scenario at many settings."""
