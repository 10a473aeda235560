"""The cache against a plain model: versions, uids, own writes, handlers and indexes."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.live.kubernetes.cache import ObjectCache
from windtunnel.live.kubernetes.resources import Meta, Object


def made(name: str, uid: str, version: int, label: str = "") -> Object:
    labels = {"app": label} if label else {}
    meta = Meta(name=name, namespace="n", uid=uid, resource_version=str(version), labels=labels)
    return Object(metadata=meta)


class Heard:
    """What a handler hears, and what one would hold who only listens."""

    def __init__(self, cache: ObjectCache[Object]) -> None:
        self.held: dict[str, Object] = {}
        self.calls = 0
        cache.subscribe(self.hear)

    def hear(self, before: Object | None, after: Object | None) -> None:
        self.calls += 1
        name = (after or before).metadata.name  # type: ignore[union-attr]
        assert self.held.get(name) == before
        if before is not None and after is not None:
            assert before.metadata.uid == after.metadata.uid
        if after is None:
            del self.held[name]
        else:
            self.held[name] = after


def test_the_same_event_twice_is_one_call() -> None:
    cache: ObjectCache[Object] = ObjectCache()
    heard = Heard(cache)
    cache.replace([made("a", "1", 5)], "5")
    cache.show(made("a", "1", 5))
    cache.show(made("a", "1", 6))
    cache.show(made("a", "1", 6))
    cache.remove(made("a", "1", 7))
    cache.remove(made("a", "1", 7))
    assert heard.calls == 3
    assert len(cache) == 0


def test_an_object_created_again_under_its_name_is_two_calls() -> None:
    cache: ObjectCache[Object] = ObjectCache()
    heard = Heard(cache)
    cache.replace([made("a", "old", 5)], "5")
    cache.replace([made("a", "new", 9)], "9")
    assert heard.calls == 3
    held = cache.get("n", "a")
    assert held is not None
    assert held.metadata.uid == "new"


def test_an_own_write_is_seen_at_once_and_older_news_do_not_undo_it() -> None:
    cache: ObjectCache[Object] = ObjectCache()
    cache.replace([made("a", "1", 5)], "5")
    cache.written(made("a", "1", 8))
    cache.written(made("b", "2", 9))
    cache.show(made("a", "1", 6))  # on its way when we wrote
    cache.advance("7")
    assert cache.get("n", "a") == made("a", "1", 8)
    cache.remove(made("b", "2", 12))
    cache.written(made("b", "2", 9))  # its answer comes after the watch has shown its end
    assert ("n", "b") not in cache


def test_a_list_that_began_before_an_own_write_does_not_undo_it_and_a_later_one_does() -> None:
    cache: ObjectCache[Object] = ObjectCache()
    cache.replace([], "5")
    cache.begin_list()
    cache.written(made("a", "1", 8))
    cache.replace([], "7")
    assert ("n", "a") in cache
    cache.begin_list()
    cache.replace([], "3")  # etcd was restored to an older state
    assert ("n", "a") not in cache
    cache.show(made("a", "1", 4))
    assert ("n", "a") in cache


@given(st.lists(st.tuples(st.sampled_from("cdmwrl"), st.integers(0, 3)), max_size=60))
def test_whatever_order_news_and_answers_come_in_the_cache_ends_as_the_server(
    steps: list[tuple[str, int]],
) -> None:
    """c, d, m: created, deleted, modified at the server. w: a write of ours, whose answer comes
    first.

    r: one event of the watch arrives. l: a new list.
    """
    cache: ObjectCache[Object] = ObjectCache()
    heard = Heard(cache)
    server: dict[str, Object] = {}
    watch: list[tuple[str, Object]] = []
    version = 1
    cache.begin_list()
    cache.replace([], "1")
    for action, number in steps:
        name = f"p{number}"
        version += 1
        if action in "cmw":
            held = server.get(name)
            uid = held.metadata.uid if held is not None else f"u{version}"
            server[name] = made(name, uid, version, f"v{version}")
            watch.append(("MODIFIED", server[name]))
            if action == "w":
                cache.written(server[name])
                assert cache.get("n", name) == server[name]
        elif action == "d" and name in server:
            gone = server.pop(name)
            watch.append(("DELETED", made(name, gone.metadata.uid, version)))
        elif action == "r" and watch:
            kind, shown = watch.pop(0)
            (cache.remove if kind == "DELETED" else cache.show)(shown)
        elif action == "l":
            cache.begin_list()
            cache.replace(list(server.values()), str(version))
            watch.clear()
        cache.check()
    for kind, shown in watch:
        (cache.remove if kind == "DELETED" else cache.show)(shown)
    assert {one.metadata.name: one for one in cache} == server
    assert heard.held == server


def test_own_writes_are_forgotten_once_the_watch_has_shown_them() -> None:
    cache: ObjectCache[Object] = ObjectCache()
    cache.replace([], "1")
    for version in range(2, 1000):
        cache.written(made(f"a{version}", str(version), version))
        cache.show(made(f"a{version}", str(version), version))
    assert len(cache._written) == 0
    cache.written(made("b", "b", 1000))
    cache.written(made("c", "c", 1002))
    cache.advance("1001")
    assert set(cache._written) == {("n", "c")}
