"""Grove's kinds as users write them: read, validated with sentences, and turned into templates."""
