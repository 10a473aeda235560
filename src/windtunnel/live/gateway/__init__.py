"""The gateway: an OpenAI-compatible proxy with the same admission and routing as a simulation.

`decisions.py` decides and does no I/O; `facts.py` defines its inputs and outputs. `data_path/`
moves bytes: `client_side.py` and `wire/connections.py` are its two ends, and `exchange.py` handles
one request between them. `program.py` starts, reloads and stops the gateway.
"""
