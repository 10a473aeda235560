"""An OpenAI-compatible server whose response times come from the engine model."""
