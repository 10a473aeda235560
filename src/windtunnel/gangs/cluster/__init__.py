"""A cluster in virtual time: machines, pods that start and end, and the scheduler between them."""
