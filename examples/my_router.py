"""A router of one's own: keep to the server that has the prompt, unless it is too busy."""


class Loyal:
    """The longest cached start wins, among servers that are not far above the least loaded."""

    def choose(self, request, servers):
        calm = min(server.in_flight for server in servers) + 8
        ready = [server for server in servers if server.in_flight <= calm]
        return max(ready, key=lambda s: (s.prefix_tokens(request), -s.in_flight, -s.number))
