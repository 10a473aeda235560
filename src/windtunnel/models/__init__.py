"""Model shapes, accelerators, step-time models and KV capacity."""
