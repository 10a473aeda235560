"""The house rules as tests: what is built, what may be imported, how code reads."""
