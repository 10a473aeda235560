"""Lists by pages: one is taken while the next is on its way; a list that fails starts over."""

import asyncio
from unittest.mock import MagicMock
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from windtunnel.live.kubernetes.client import PAGE, SMALL_PAGE, Client
from windtunnel.live.kubernetes.errors import ApiStatus, Gone, TooLarge
from windtunnel.live.kubernetes.resources import PODS


class Paged(Client):
    """An API server with so many objects; some requests of it go wrong."""

    def __init__(self, objects: int, *, most: int = PAGE, wrong: dict[int, Exception]) -> None:
        super().__init__(MagicMock())
        self.objects, self.most, self.wrong = objects, most, wrong
        self.asked: list[tuple[int, int]] = []

    async def _read(self, path: str, *, urgent: bool = False) -> bytes:
        query = {key: int(value[0]) for key, value in parse_qs(urlsplit(path).query).items()}
        first, limit = query.get("continue", 0), query["limit"]
        self.asked.append((first, limit))
        await asyncio.sleep(0)
        if len(self.asked) in self.wrong:
            raise self.wrong[len(self.asked)]
        if limit > self.most:
            raise TooLarge("the answer is too large")
        last = min(first + limit, self.objects)
        more = str(last) if last < self.objects else ""
        meta = {"resourceVersion": "7", "continue": more}
        return msgspec.json.encode({"metadata": meta, "items": list(range(first, last))})


def listed(client: Paged, page: int) -> list[int]:
    found = asyncio.run(client.list_all(PODS, page=page))
    assert found.version == "7"
    return [msgspec.json.decode(one) for one in found.items]


def gone() -> Gone:
    return Gone("GET /pods", 410, ApiStatus(), 0.0)


@pytest.mark.parametrize("wrong", [{}, {2: gone()}, {3: gone(), 4: gone()}])
def test_all_pages_come_once_and_in_order(wrong: dict[int, Exception]) -> None:
    assert listed(Paged(10, wrong=wrong), 4) == list(range(10))


def test_a_list_whose_pages_are_gone_again_and_again_fails() -> None:
    with pytest.raises(Gone):
        listed(Paged(10, wrong={2: gone(), 4: gone(), 6: gone()}), 4)


def test_pages_that_are_too_large_are_asked_for_in_smaller_ones() -> None:
    client = Paged(1200, most=SMALL_PAGE, wrong={})
    assert listed(client, PAGE) == list(range(1200))
    assert client.asked == [(0, PAGE), (0, 500), (500, 500), (1000, 500)]
    with pytest.raises(TooLarge):
        listed(Paged(1200, most=10, wrong={}), PAGE)


def test_a_page_is_taken_while_the_next_one_is_on_its_way() -> None:
    client = Paged(8, wrong={})
    order: list[int] = []
    selection = MagicMock(namespace="", query=dict)
    asyncio.run(
        client.list_pages(
            PODS, selection, order.clear, lambda page: order.append(len(client.asked)), page=4
        )
    )
    assert order == [2, 2], "both were asked for when the first was taken"
