"""The gateway: an OpenAI-compatible proxy whose admission and routing are those of a simulation.

`decisions.py` decides and does no I/O; `facts.py` has its inputs and outputs.
`data_path/` moves bytes: `client_side.py` and `server_side.py` are its two ends, and `exchange.py`
is one request between them. `program.py` starts, reloads and stops it all.
"""
