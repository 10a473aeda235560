"""Commands that talk to real clients and servers."""
