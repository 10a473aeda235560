"""The scenario table of the gang layer, in virtual time."""
