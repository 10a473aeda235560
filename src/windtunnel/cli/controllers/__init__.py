"""Commands of single layers: gangs, the fleet, and fuzzing of the whole."""
