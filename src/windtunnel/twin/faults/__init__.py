"""What goes wrong in a run: when, to whom, and what that does."""
