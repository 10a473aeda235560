"""Drivers of admission in wall-clock time: for asyncio, for threads, for a dataset's cells."""
