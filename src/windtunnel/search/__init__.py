"""Many runs of one scenario: sweeps, plans and sensitivities, on one machine or many."""
