"""Grove's kinds as people write them: read, checked with sentences, and turned into templates."""
