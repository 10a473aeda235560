"""Policies against each other, and the schedule of somebody who knows all arrivals."""
