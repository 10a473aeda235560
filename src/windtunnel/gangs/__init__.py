"""What must start, live and die together: sets of pods, their gangs, and who keeps them whole."""
