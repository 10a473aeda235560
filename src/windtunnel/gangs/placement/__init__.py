"""Where gangs go: all-or-nothing placement on machines, and why a gang waits."""
