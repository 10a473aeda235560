"""What servers stand on: gangs of pods, and the machines under them."""
