"""The operator without an API server: what it does when one is away, refuses or breaks off."""
