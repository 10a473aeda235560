"""`python -m windtunnel` is the `windtunnel` command."""

from windtunnel.cli.program import program

if __name__ == "__main__":
    program()
