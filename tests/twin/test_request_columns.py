"""Columns of ended requests hold what the attributes of the requests were, usual or not."""

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.twin.results.columns import PACKED, USUAL, RequestColumns
from windtunnel.twin.results.recorder import OUTCOMES
from windtunnel.workload.request import Request

RARE = sorted(set(USUAL) - {"outcome"})
VALUES = st.one_of(st.none(), st.integers(0, 1 << 40))


@given(rows=st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(RARE), VALUES)))
def test_a_column_has_the_attribute_of_every_request(
    rows: list[tuple[str, str, int | None]],
) -> None:
    columns, requests = RequestColumns(OUTCOMES), []
    for number, (outcome, name, value) in enumerate(rows):
        request = Request(number, 0.5 * number, 10 + number, 20)
        request.reason = "why" if number % 3 else ""
        if value is not None:
            setattr(request, name, float(value) if name.endswith("_s") else value)
        requests.append(request)
        columns.add([request], [outcome])
    for name in (*(name for name, _ in PACKED), *RARE):
        expected = [getattr(request, name) for request in requests]
        assert columns.column(name).tolist() == expected, name
    assert [OUTCOMES[code] for code in columns.column("outcome")] == [row[0] for row in rows]
    assert columns.rows == len(rows)
    for number, request in enumerate(requests):
        if rows[number][0] != "unfinished":
            assert columns.reasons.get(number, "") == request.reason
        else:
            assert columns.reasons[number].startswith("the run ended")
