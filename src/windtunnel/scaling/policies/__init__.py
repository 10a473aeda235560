"""Policies: each file has the settings of one or more, and the parts that they consist of."""
