"""The simulated clusters and machines under the servers of a run."""
