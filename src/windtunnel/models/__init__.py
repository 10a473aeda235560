"""What a server runs on: model shapes, accelerators, step-time models and KV capacity."""
