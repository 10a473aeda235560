"""Drivers of request admission in wall-clock time: for asyncio, threads and a dataset's cells."""
