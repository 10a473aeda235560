"""Whose turn it is: fair queues of work in groups."""
