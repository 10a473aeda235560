"""The gateway: an OpenAI-compatible proxy whose admission and routing are those of a simulation.

`decisions.py` decides and does no I/O. `client_side.py` and `server_side.py` are the two ends of
the data path, `exchange.py` is one request between them, and `program.py` starts, reloads and stops
it all.
"""
