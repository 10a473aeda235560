"""Step-time models: how long one engine step takes on the GPU."""
