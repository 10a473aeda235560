"""A client for OpenAI-compatible servers that works through a file of rows, and can go on later."""
