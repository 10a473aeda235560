"""KV-cache events and tokenizers: what servers say they have, by the tokens of prompts."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.gateway.bed import Bed, FakeServer, bed, chat, friendly, run
from windtunnel.core.errors import InputError
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.kv import blocks
from windtunnel.live.gateway.kv import events as kv_events
from windtunnel.live.gateway.kv.blocks import (
    BadEvents,
    CacheChange,
    MergedRanks,
    ServerBlocks,
    read_batch,
)
from windtunnel.live.gateway.kv.tokens import ModelTokenizer, TokenChain
from windtunnel.live.gateway.settings import read_settings

tokenizers = pytest.importorskip("tokenizers")
zmq = pytest.importorskip("zmq")

WORDS = 50
TEMPLATE = (
    "{% for m in messages %}w1 {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}w2{% endif %}"
)


def tokenizer_in(folder: Path) -> Path:
    """A tokenizer of `WORDS` words, w0 and so on, whose numbers are their tokens."""
    words = tokenizers.models.WordLevel({f"w{n}": n for n in range(WORDS)}, unk_token="w0")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def named(tokens: list[int], size: int, start: str = "") -> tuple[list[str], list[list[int]]]:
    """Blocks of tokens, each named by all that is before it, as an engine does."""
    blocks = [tokens[n : n + size] for n in range(0, len(tokens) - size + 1, size)]
    return [f"{start}{tokens[: (n + 1) * size]}" for n in range(len(blocks))], blocks


def stored(tokens: list[int], size: int = 16, **more: Any) -> dict[str, Any]:
    hashes, blocks = named(tokens, size)
    flat = [token for block in blocks for token in block]
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None,
            "token_ids": flat, "block_size": size, **more}  # fmt: skip


def key(state: int) -> int:
    return state >> 1


def keys_of(tokens: list[int], model: str = "m", salt: str = "") -> list[tuple[int, int]]:
    _, found = TokenChain.start(model, salt).extended(tokens)
    return [(key(state), end) for state, end in found]


@given(
    st.lists(st.integers(0, 3), min_size=64, max_size=300),
    st.sampled_from([1, 5, 16, 32, 100]),
    st.integers(1, 4),
)
def test_a_block_has_the_keys_of_the_prompts_that_it_is_part_of(
    tokens: list[int], size: int, cuts: int
) -> None:
    blocks = ServerBlocks("m", key)
    hashes, parts = named(tokens, size)
    found: list[tuple[int, int]] = []
    step = max(1, len(hashes) // cuts)
    for first in range(0, len(hashes), step):  # in several events, each after the one before
        last = first + step
        change = blocks.apply(
            [
                {
                    "type": "BlockStored",
                    "block_hashes": hashes[first:last],
                    "parent_block_hash": hashes[first - 1] if first else None,
                    "token_ids": [token for part in parts[first:last] for token in part],
                    "block_size": size,
                }
            ]
        )
        assert not change.removed
        found += change.stored
    covered = tokens[: len(hashes) * size]
    assert found == keys_of(covered)
    gone = blocks.apply([{"type": "BlockRemoved", "block_hashes": hashes[::-1]}])
    assert sorted(gone.removed) == sorted({one for one, _ in found})
    assert len(blocks) == 0


def test_salt_adapter_images_and_other_tiers_are_kept_apart() -> None:
    tokens = [3] * 64
    plain = keys_of(tokens)
    for more, wanted in (
        ({}, plain),
        ({"lora_name": "a", "extra_keys": [["a"]] + [["a"]] * 3}, keys_of(tokens, "a")),
        ({"extra_keys": [["salt"], None, None, None]}, keys_of(tokens, "m", "salt")),
        ({"lora_name": "a", "extra_keys": [["a", "s"]]}, keys_of(tokens, "a", "s")),
        ({"medium": "CPU"}, []),
        ({"group_idx": 1}, []),
        ({"medium": "GPU", "group_idx": 0}, plain),
    ):
        assert ServerBlocks("m", key).apply([stored(tokens, **more)]).stored == wanted
    image = ServerBlocks("m", key).apply([stored(tokens, extra_keys=[None, [["hash", 0]]])])
    assert image.stored
    assert image.stored != plain


def test_events_are_read_as_maps_and_as_arrays_and_anything_else_is_refused() -> None:
    event = stored([1] * 64)
    as_array = ["BlockStored", event["block_hashes"], None, event["token_ids"], 16, None]
    for events in ([event], [as_array]):
        found = read_batch(msgspec.msgpack.encode([1.5, events, 0]))
        assert ServerBlocks("m", key).apply(found).stored == keys_of([1] * 64)
    assert read_batch(msgspec.msgpack.encode([1.5, [{"type": "NewKind"}]])) == []
    for bad in (b"", b"\xc1", msgspec.msgpack.encode(7), msgspec.msgpack.encode([1, 2])):
        with pytest.raises(BadEvents):
            read_batch(bad)
    for wrong in ({"token_ids": [1]}, {"block_size": 0}, {"token_ids": ["x"] * 64}):
        with pytest.raises(BadEvents):
            ServerBlocks("m", key).apply([stored([1] * 64) | wrong])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip
BLOCKS = st.integers(0, 2).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            "type": st.just("BlockStored"),
            "block_hashes": st.lists(st.integers(0, 9) | ANYTHING, min_size=count, max_size=count),
            "parent_block_hash": st.none() | st.integers(0, 9) | ANYTHING,
            "token_ids": st.lists(
                st.integers(0, 9) | st.integers(-(2**63), 2**64 - 1) | ANYTHING,
                min_size=2 * count,
                max_size=2 * count,
            ),
            "block_size": st.just(2) | ANYTHING,
        },
        optional={
            "lora_name": st.text(max_size=2) | ANYTHING,
            "extra_keys": st.lists(ANYTHING, max_size=2) | ANYTHING,
            "medium": st.just("GPU") | ANYTHING,
            "group_idx": ANYTHING,
        },
    )
)
EVENTS = st.lists(
    BLOCKS
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["BlockRemoved", "AllBlocksCleared"]), "block_hashes": ANYTHING}
    )
    | BLOCKS.map(lambda event: list(event.values()))
    | ANYTHING,
    max_size=4,
)


@given(st.binary(max_size=60) | EVENTS.map(lambda events: msgspec.msgpack.encode([0.0, events])))
def test_any_message_is_read_or_refused(payload: bytes) -> None:
    with contextlib.suppress(BadEvents):
        ServerBlocks("m", key).apply(read_batch(payload))


DEEP = b"\x91" * 100_000 + b"\xc0"
LARGE = msgspec.msgpack.encode([0.0, [stored([2**63 + n for n in range(16)])]])


@pytest.mark.parametrize("payload", [DEEP, LARGE])
def test_messages_that_are_too_deep_or_have_tokens_too_large_are_refused(payload: bytes) -> None:
    with pytest.raises(BadEvents):
        ServerBlocks("m", key).apply(read_batch(payload))


def test_more_events_than_are_read_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_EVENTS", 2)
    read_batch(msgspec.msgpack.encode([0.0, [stored([1] * 16)] * 2]))
    with pytest.raises(BadEvents, match="at most 2"):
        read_batch(msgspec.msgpack.encode([0.0, [stored([1] * 16)] * 3]))


def test_prompts_are_tokenized_as_the_model_does(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer(tokenizer_in(tmp_path / "t"))
    text = "w7 " * 70
    chats = {"messages": [{"role": "user", "content": text}]}
    exact = tokenizer.read(chats, "m", "")
    assert exact is not None
    assert exact.tokens == 72
    assert [(key(state), end) for state, end in exact.boundaries] == keys_of([1] + [7] * 70)
    whole = tokenizer.read({"prompt": text}, "m", "")
    assert whole is not None
    assert whole.tokens == 70
    numbers = tokenizer.read({"prompt": [7] * 70}, "m", "")
    assert numbers == whole
    assert tokenizer.read({"input": "x"}, "m", "") is None
    assert tokenizer.read({"messages": "x"}, "m", "") is None
    long = tokenizer.read({"prompt": "w7 " * 100_000}, "m", "")
    assert long is not None
    assert long.tokens == pytest.approx(100_000, rel=0.01)
    assert long.boundaries[: len(whole.boundaries)] == whole.boundaries


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer can be loaded"):
        ModelTokenizer(tmp_path)
    with pytest.raises(InputError, match="need a tokenizer"):
        read_settings(None, ["live.kv_events={port: 5557}"], ["http://10.0.0.1:8000"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (b"{", "truncated"),
        (b"\xff", "this cannot be read"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"bos_token": {}}', "missing required field `content`"),
        (b'{"eos_token": 7}', "eos_token"),
        (b'{"chat_template": [{"name": "default"}]}', "missing required field `template`"),
        (b'{"chat_template": {"default": "x"}}', "chat_template"),
        (b'{"chat_template": "{% for %}"}', "the chat template cannot be used"),
    ],
)
def test_a_bad_tokenizer_config_is_a_sentence_with_its_path(
    tmp_path: Path, config: bytes, said: str
) -> None:
    folder = tokenizer_in(tmp_path / "t")
    (folder / "tokenizer_config.json").write_bytes(config)
    with pytest.raises(InputError) as error:
        ModelTokenizer(folder)
    assert said in str(error.value)
    assert str(error.value).startswith(str(folder / "tokenizer_config.json"))


@pytest.mark.parametrize("written", ["", "{", "[]", "{}", '{"model": {"type": "BPE"}}', "null"])
def test_a_bad_tokenizer_is_a_sentence_with_its_path(tmp_path: Path, written: str) -> None:
    folder = tokenizer_in(tmp_path / "t")
    (folder / "tokenizer.json").write_text(written)
    with pytest.raises(InputError, match="no tokenizer can be loaded") as error:
        ModelTokenizer(folder)
    assert str(folder / "tokenizer.json") in str(error.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[1e999999]}',
        b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"m","messages":[],"\\ud800":1,"kv_transfer_params":{}}',
        b'{"model":"m","messages":[],"\xff":1,"kv_transfer_params":{}}',
        b'{"model":"m","messages":["\\ud800"]}',
    ],
)
def test_a_malformed_body_is_a_400_with_a_tokenizer(tmp_path: Path, body: bytes) -> None:
    async def test() -> None:
        folder = tokenizer_in(tmp_path / "t")
        async with bed(sets=(f"live.tokenizers={{m: {folder}}}",)) as it:
            got = await it.ask(body)
            assert (got.status, got.json["error"]["type"]) == (400, "invalid_request_error")
            it.settled()

    run(test())


def test_a_prompt_that_is_too_large_for_a_template_is_estimated(tmp_path: Path) -> None:
    async def test() -> None:
        folder = tokenizer_in(tmp_path / "t")
        sets = (f"live.tokenizers={{m: {folder}}}", f"live.log={tmp_path / 'log'}")
        async with bed(sets=sets) as it:
            for words in (10, 400_000):
                messages = [{"role": "user", "content": "w7 " * words}]
                assert (await it.ask(chat() | {"messages": messages})).status == 200

    run(test())
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    found = [one["data"]["prompt_tokens"] for one in lines if one["kind"] == "request.arrived"]
    assert found[0] == 12
    assert found[1] == pytest.approx(1_200_000 / 4, rel=0.05)


changes = st.tuples(
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.integers(0, 5), unique=True, max_size=3),
    st.lists(st.integers(0, 5), unique=True, max_size=3),
)


@given(st.lists(changes, max_size=20))
def test_a_server_has_what_any_of_its_ranks_has(told: list[Any]) -> None:
    merged = MergedRanks(3)
    ranks: list[set[int]] = [set(), set(), set()]
    server: set[int] = set()
    for rank, cleared, stored, dropped in told:
        removed = [key for key in dropped if key not in stored]
        ranks[rank] = (set() if cleared else ranks[rank] - set(removed)) | set(stored)
        found = merged.merge(rank, CacheChange(cleared, [(key, 64) for key in stored], removed))
        server = (set() if found.cleared else server) - set(found.removed)
        server |= {key for key, _ in found.stored}
        assert server == ranks[0] | ranks[1] | ranks[2]


def test_every_rank_of_a_server_is_followed_at_its_port(tmp_path: Path) -> None:
    from zmq.asyncio import Context

    async def test() -> None:
        context = Context()
        publishers: list[Any] = []
        for base in range(21_000, 60_000, 7):  # two ports one after another
            with contextlib.suppress(zmq.ZMQError):
                publishers.clear()
                for rank in range(2):
                    publishers.append(context.socket(zmq.PUB))
                    publishers[-1].bind(f"tcp://127.0.0.1:{base + rank}")
                break
        file = tmp_path / "gateway.yaml"
        file.write_text(
            f"live:\n  tokenizers: {{m: {tokenizer_in(tmp_path / 't')}}}\n"
            f"  kv_events: {{port: {base}, ranks: 2}}\n"
        )
        try:
            async with bed(friendly, config=file) as it:
                prompts = [[1] * 64, [2] * 64]
                numbers = [0, 0]
                while not all(cached(it, one, 0) for one in prompts):
                    for rank, one in enumerate(prompts):
                        payload = msgspec.msgpack.encode([0.0, [stored(one)]])
                        frames = [b"", numbers[rank].to_bytes(8, "big"), payload]
                        await publishers[rank].send_multipart(frames)
                        numbers[rank] += 1
                    await asyncio.sleep(0.02)
                payload = msgspec.msgpack.encode([0.0, [{"type": "AllBlocksCleared"}]])
                await publishers[1].send_multipart([b"", numbers[1].to_bytes(8, "big"), payload])
                await it.until(lambda: not cached(it, prompts[1], 0))
                assert cached(it, prompts[0], 0) == 64
        finally:
            for one in publishers:
                one.close(0)
            context.destroy(0)

    run(test())


class Publisher:
    """Publishes as vLLM does: numbered batches, and the last ones again for those that ask."""

    def __init__(self, context: Any) -> None:
        self._events = context.socket(zmq.PUB)
        self._replay = context.socket(zmq.ROUTER)
        self.port = self._events.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self._replay.bind_to_random_port("tcp://127.0.0.1")
        self.sent: list[tuple[int, bytes]] = []
        self.number = 0
        self.kept_from = 0
        self._task = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        while True:
            who, empty, start = await self._replay.recv_multipart()
            for number, payload in self.sent:
                if number >= max(int.from_bytes(start, "big"), self.kept_from):
                    parts = [who, empty, b"", number.to_bytes(8, "big"), payload]
                    await self._replay.send_multipart(parts)
            await self._replay.send_multipart([who, empty, b"", b"\xff" * 8, b""])

    async def publish(self, *events: Any, lose: bool = False) -> None:
        payload = msgspec.msgpack.encode([0.0, list(events)])
        self.sent.append((self.number, payload))
        if not lose:
            await self._events.send_multipart([b"", self.number.to_bytes(8, "big"), payload])
        self.number += 1

    def restart(self) -> None:
        self.number = 0
        self.sent.clear()

    def close(self) -> None:
        self._task.cancel()
        self._events.close(0)
        self._replay.close(0)


@contextlib.asynccontextmanager
async def telling(tmp_path: Path) -> AsyncIterator[tuple[Bed, Publisher]]:
    """A gateway in front of two servers; the second tells what it has cached."""
    from zmq.asyncio import Context

    context = Context()
    publisher = Publisher(context)
    silent = await FakeServer().start()
    file = tmp_path / "gateway.yaml"
    file.write_text(
        f"live:\n  servers: [{{url: '{silent.url}', kv_events_port: 1}}]\n"
        f"  tokenizers: {{m: {tokenizer_in(tmp_path / 't')}}}\n"
        f"  kv_events: {{port: {publisher.port}, replay_port: {publisher.replay_port}}}\n"
        f"  log: {tmp_path / 'log'}\n"
        "serving: {router: {policy: weighted, scorers: {prefix-cache: 1}, cache_delay: 0s}}\n"
    )
    try:
        async with bed(friendly, config=file, ready=False) as it:
            await it.until(
                lambda: (
                    len(it.core.servers) == 2
                    and all(one.availability.healthy for one in it.core.servers)
                )
            )
            while not cached(it, [9] * 64):  # what is published before it connects is lost
                await publisher.publish(stored([9] * 64))
                await asyncio.sleep(0.02)
            yield it, publisher
    finally:
        publisher.close()
        context.destroy(0)
        await silent.stop()


class Chain(NamedTuple):
    """A prefix as the decisions have it."""

    keys: list[int]
    ends: list[int]


def cached(it: Bed, tokens: list[int], server: int = 1) -> int:
    """How much of a prompt a server is known to have."""
    _, found = TokenChain.start("m", "").extended(tokens)
    make = it.program._prompts.key
    chain = Chain([make(state) for state, _ in found], [end for _, end in found])
    return int(it.core.planes["m"].caches.cached_tokens(server, chain))


def test_lost_events_are_replayed_and_a_restart_or_a_gap_forgets(tmp_path: Path) -> None:
    async def test() -> None:
        async with telling(tmp_path) as (it, publisher):
            a, b, c = [1] * 128, [2] * 64, [3] * 64
            await publisher.publish(stored(a), lose=True)
            await publisher.publish(stored(b))
            await it.until(lambda: (cached(it, a), cached(it, b)) == (128, 64))
            await publisher.publish({"type": "BlockRemoved", "block_hashes": named(a, 16)[0][4:]})
            await it.until(lambda: cached(it, a) == 64)
            await publisher.publish({"type": "AllBlocksCleared"}, stored(c))
            await it.until(lambda: (cached(it, a), cached(it, b), cached(it, c)) == (0, 0, 64))
            await publisher.publish(stored(a), lose=True)  # and not kept
            publisher.kept_from = publisher.number
            await publisher.publish(stored(b))
            await it.until(lambda: (cached(it, a), cached(it, b), cached(it, c)) == (0, 64, 0))
            publisher.restart()
            publisher.kept_from = 0
            await publisher.publish(stored(a))
            await it.until(lambda: (cached(it, a), cached(it, b)) == (128, 0))
            await publisher.publish("nonsense")
            await it.until(lambda: cached(it, a) == 0)
            while not cached(it, a):  # it is followed again
                await publisher.publish(stored(a))
                await asyncio.sleep(0.02)

    run(test())
    assert audit(tmp_path / "log").difference == ""


def test_a_failure_of_any_kind_forgets_what_was_told_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with telling(tmp_path) as (it, publisher):
            monkeypatch.setattr(kv_events, "AGAIN_S", 0.01)
            a = [1] * 128

            works = kv_events.KvEventReader._apply
            failed: list[int] = []

            def fails_once(reader: Any, number: int, payload: bytes) -> None:
                if not failed:
                    failed.append(number)
                    raise OSError("no more sockets")
                works(reader, number, payload)

            monkeypatch.setattr(kv_events.KvEventReader, "_apply", fails_once)
            await publisher.publish(stored(a))
            await it.until(lambda: cached(it, [9] * 64) == 0)
            while not cached(it, a):
                await publisher.publish(stored(a))
                await asyncio.sleep(0.02)

    run(test())


def test_a_replay_ends_at_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with telling(tmp_path) as (it, publisher):
            monkeypatch.setattr(kv_events, "MOST_REPLAYED_BYTES", 1000)
            first, last = [1] * 64, [2] * 64
            for _ in range(5):
                await publisher.publish(stored(first), lose=True)
            await publisher.publish(stored(last))
            await it.until(lambda: cached(it, last) == 64)
            assert cached(it, [9] * 64) == 0  # a gap: nothing from before counts

    run(test())


def test_a_request_goes_to_the_server_that_says_it_has_its_prompt(tmp_path: Path) -> None:
    tokens = [1] + [7] * 100

    async def test() -> None:
        async with telling(tmp_path) as (it, publisher):
            body = chat() | {"messages": [{"role": "user", "content": "w7 " * 100}]}
            await publisher.publish(stored(tokens))
            await it.until(lambda: cached(it, tokens) == 64)
            for _ in range(5):
                assert (await it.ask(body)).status == 200
            assert len(it.servers[0].requests) == 5
            await publisher.publish({"type": "AllBlocksCleared"})
            await it.until(lambda: cached(it, tokens) == 0)
            assert (await it.ask(body)).status == 200
            assert cached(it, tokens) == 0  # what was sent does not count where servers tell
            it.settled()

    run(test())
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    arrived = [line["data"] for line in lines if line["kind"] == "request.arrived"]
    assert [one["prompt_tokens"] for one in arrived] == [102] * 6
    assert audit(tmp_path / "log").difference == ""
