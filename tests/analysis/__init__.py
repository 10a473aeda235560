"""What a run leaves on the screen and on disk."""
