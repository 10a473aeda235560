"""The planner: inventory, needs table and the decision cycle over them."""
