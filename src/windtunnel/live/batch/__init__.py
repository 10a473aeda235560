"""A resumable client that sends a file of rows to OpenAI-compatible servers."""
