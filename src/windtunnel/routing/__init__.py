"""Routers: choose a server for each request from views of servers and caches, with a reason."""
