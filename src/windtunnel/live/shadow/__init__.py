"""The shadow as a program: follows a gateway's files, ticks, serves metrics."""
