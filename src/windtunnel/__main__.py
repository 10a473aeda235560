"""`python -m windtunnel` is the `windtunnel` command."""

from windtunnel.cli.main import program

if __name__ == "__main__":
    program()
