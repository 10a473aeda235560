"""A resumable client for OpenAI-compatible servers that works through a file of rows."""
