"""Gateway admission: shedding, budgets and flow control."""
