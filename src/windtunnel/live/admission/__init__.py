"""Drivers of request admission in wall-clock time: for asyncio, for threads, and for a dataset's
cells."""
