"""A local web application: edit scenarios, watch runs, compare and explain them in a browser."""
