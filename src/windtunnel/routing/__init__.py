"""Routers: choose the server of a request from views of servers and caches, with a reason."""
