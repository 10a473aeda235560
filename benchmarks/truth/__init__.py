"""The simulator compared with published measurements of served models; it was fitted to none."""
