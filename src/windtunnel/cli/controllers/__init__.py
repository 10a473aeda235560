"""Commands for single controllers (gangs, the fleet) and for fuzzing all of them."""
