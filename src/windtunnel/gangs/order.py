"""Startup order: who waits for whom, and whether that can ever end."""

from collections.abc import Mapping, Sequence


def cycle_in(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """A circle of names, each after the next, its first name also last; empty when there is none.

    `graph` has for each name those that come before it.
    """
    done: dict[str, bool] = {}  # False while it is on the path that is being followed
    for start in graph:
        if start in done:
            continue
        path = [(start, iter(graph[start]))]
        done[start] = False
        while path:
            name, parents = path[-1]
            parent = next(parents, None)
            if parent is None:
                done[name] = True
                path.pop()
            elif parent in graph and parent not in done:
                done[parent] = False
                path.append((parent, iter(graph[parent])))
            elif done.get(parent) is False:
                names = [name for name, _ in path]
                return [*names[names.index(parent) :], parent]
    return []
