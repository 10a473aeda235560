"""The data path from client to server and back: HTTP/1.1 on both sides, bytes passed through."""
