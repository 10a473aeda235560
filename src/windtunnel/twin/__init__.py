"""The closed loop in virtual time: scenario, composition, faults, results."""
