"""An OpenAI-compatible server whose answers take as long as the engine model says."""
