"""report.html: what it says; that it is whole, small and harmless, and can be made again."""

import html
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.report.page.runs import GATED, SILENT, SPLIT, STUCK, full, run_into
from tests.twin.runs import BUSY, one_server
from windtunnel.analysis import run_folder as contents
from windtunnel.analysis.run import read_run
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError
from windtunnel.report.page.headline import tiles
from windtunnel.report.page.render import render, report_page
from windtunnel.twin.results.chance import draws

LARGEST = 2_000_000
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
SCENARIOS = {
    "split": SPLIT,
    "gated": GATED,
    "calm": full(),
    "overloaded": full(rate=60),
    "busy": BUSY,
    "one": one_server(),
    "stuck": STUCK,
    "silent": SILENT,
    "no time": one_server().replace("name: one", "name: one\nduration: 1us"),
}


def page_of(folder: Path) -> str:
    return (folder / contents.REPORT).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_run_has_a_whole_page_that_is_made_again_to_the_byte(
    name: str, tmp_path: Path
) -> None:
    done = run_into(tmp_path, SCENARIOS[name])
    page = page_of(tmp_path)
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    for said in (done.result["name"], done.result["scenario_sha256"], f"seed {done.plan.seed}"):
        assert said in page
    assert "nan" not in re.sub(r"[A-Za-z]nan|nan[A-Za-z]", "", page)
    assert report_page(tmp_path) == page
    assert ("--trust" in page) == draws(done.plan), "no intervals where chance has no part"


def test_a_tile_has_the_attainment_of_all_classes_and_of_the_worst(tmp_path: Path) -> None:
    result = run_into(tmp_path, one_server()).result
    good = {"requests": 30, "attained": 1.0, "attained_by": {"ttft": 1.0, "e2e": None}}
    bad = {"requests": 10, "attained": 0.5, "attained_by": {"ttft": None, "e2e": 0.5}}
    free = {"requests": 10, "attained": 0.4, "attained_by": {"ttft": None, "e2e": None}}
    classes = {"chat": good, "batch": bad, "no target": free}
    shown = {tile.name: tile for tile in tiles({**result, "slo": classes})}
    assert shown["SLO attainment"].figure == "87.5%"
    assert shown["SLO attainment"].note == "50.0% of batch"
    assert "p95 " in shown["TTFT p99"].note
    unseen = {"requests": 0, "attained": None, "attained_by": {"ttft": None, "e2e": None}}
    for nothing in (unseen, free):
        assert "SLO attainment" not in [
            one.name for one in tiles({**result, "slo": {"a": nothing}})
        ]


def test_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    run_into(tmp_path, one_server())
    for name in (contents.RESULT, contents.TIMELINE):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match=f"{name}: this is a pipe or a device, not a file"):
            contents.json_of(tmp_path / name)
    with pytest.raises(InputError, match=r"this is a pipe"):
        report_page(tmp_path)


def test_it_asks_nobody_for_anything(tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    page = page_of(tmp_path)
    assert "default-src 'none'" in html.unescape(page)
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"<(link|iframe|object|embed|base|form|audio|video)\b", page)
    assert set(re.findall(r'\b(?:src|href)="([a-z]*:?)', page)) == {"data:"}
    assert set(re.findall(r"url\((.)", page)) == {"#"}
    assert "style=" not in page
    assert not re.search(r"\son[a-z]+=", page)


def test_a_service_level_says_what_share_kept_it(tmp_path: Path) -> None:
    done = run_into(tmp_path, full(rate=60))
    share = done.result["slo"]["critical"]["attained"]
    assert share < 0.9
    page = page_of(tmp_path)
    assert f'{share:.1%} <span class="word">attained</span>' in page
    assert 'class="fill bad"' in page
    assert re.search(r"\d% of the ended requests of critical missed their SLO: time to ", page)


def test_an_overload_is_said_and_marked(tmp_path: Path) -> None:
    run_into(tmp_path, full(rate=60))
    page = page_of(tmp_path)
    assert "Servers were saturated for" in page
    assert "all batch slots taken" in page
    assert 'class="band"' in page
    assert "all 8 slots of its server were taken" in page
    run_into(tmp_path, full(rate=5))
    page = page_of(tmp_path)
    assert "No stretch of time was saturated." in page
    assert 'class="band"' not in page


def test_a_run_in_which_nothing_completes(tmp_path: Path) -> None:
    done = run_into(tmp_path, STUCK)
    assert done.result["requests"]["completed"] == 0
    page = page_of(tmp_path)
    assert "None of the" in page
    assert "KV blocks, the server has 999" in page
    assert "unfinished" in page
    run_into(tmp_path, SILENT)
    assert "No request arrived." in page_of(tmp_path)
    assert "There were no requests." in page_of(tmp_path)


def test_a_line_at_the_gateway_is_shown_wherever_it_matters(tmp_path: Path) -> None:
    done = run_into(tmp_path, GATED)
    assert done.result["latency"]["gateway"]["p99"] > 1.0
    page = page_of(tmp_path)
    assert "Queued at the gateway" in page  # a picture
    assert "queued requests" in page  # a chart
    assert '<rect class="gateway"' in page  # a phase
    assert re.search(r"queued for [0-9.]+ s at the gateway, \d+ queued", page)
    (reason,) = done.result["reasons"]["rejected"]
    assert html.escape(reason) in page
    run_into(tmp_path, full())
    assert "gateway" not in page_of(tmp_path).partition("</style>")[2].partition("Settings")[0]


def test_a_split_run_shows_what_its_transfers_did(tmp_path: Path) -> None:
    run_into(tmp_path, SPLIT)
    page = page_of(tmp_path)
    assert "Prefill and decode on separate servers" in page
    assert "KV transfers" in page
    assert "20 MB/s bandwidth" in page
    assert '<rect class="transfer"' in page
    assert "first 0<br>to second 0" in page or "first 1<br>to second 0" in page
    assert "the client left before the decode server had room for its KV cache" in page
    run_into(tmp_path, SPLIT, "serving.disaggregation.transfer.bandwidth=4MB/s")
    assert "The link between servers was full for" in page_of(tmp_path)
    run_into(tmp_path, SPLIT, "serving.disaggregation.transfer.contention=false")
    assert "The link between servers was full for" not in page_of(tmp_path)


def test_many_servers_and_many_requests_stay_small(tmp_path: Path) -> None:
    one = full(rate=3000, replicas=300).replace("8s", "2s")
    run_into(tmp_path, one)
    page = page_of(tmp_path)
    assert "300 servers" in page
    assert "neighbouring servers of a pool share a row" in page
    assert len(page.encode()) < LARGEST / 2  # and a run is at most 480 samples, whatever its length


def test_a_report_does_not_grow_with_the_number_of_requests(tmp_path: Path) -> None:
    run_into(tmp_path, SPLIT)
    before = len(page_of(tmp_path).encode())
    rows = pq.read_table(tmp_path / contents.REQUESTS)
    with pq.ParquetWriter(tmp_path / contents.REQUESTS, rows.schema) as file:
        for number in range(400):  # a hundred thousand of them, in as many parts
            ids = pc.add(rows["id"], number * rows.num_rows)
            file.write_table(rows.set_column(0, "id", ids))
    page = report_page(tmp_path)
    assert f"distribution of {400 * json_of(tmp_path)['requests']['completed']:,} requests" in page
    assert len(page.encode()) < 1.1 * before < LARGEST / 4


def json_of(folder: Path) -> dict[str, Any]:
    return msgspec.json.decode((folder / contents.RESULT).read_bytes(), type=dict[str, Any])


def test_a_folder_of_another_version_is_a_sentence(tmp_path: Path) -> None:
    run_into(tmp_path, one_server())
    result = json_of(tmp_path)
    for fault in ({"tokens": 5}, {"slo": None}, {"pools": ["main"]}, {"trust": "yes"}):
        (tmp_path / contents.RESULT).write_bytes(msgspec.json.encode(result | fault))
        with pytest.raises(InputError, match=r"incomplete|tokens|pools\.?|trust is not an object"):
            report_page(tmp_path)
    del result["fairness"], result["slo"]
    (tmp_path / contents.RESULT).write_bytes(msgspec.json.encode(result))
    with pytest.raises(InputError, match=r"result\.json: slo is missing") as caught:
        report_page(tmp_path)
    assert "simulate again" in str(caught.value)


def test_no_name_becomes_markup(tmp_path: Path) -> None:
    """Scenarios refuse such names; a page is made from files that anybody may have written."""
    run_into(tmp_path, full(rate=60))
    run = read_run(tmp_path)
    kept = run.slowest._kept
    for upto, entries in kept.items():
        kept[upto] = [
            (took, number, msgspec.structs.replace(row, source=HOSTILE, reason=HOSTILE))
            for took, number, row in entries
        ]
    run.endings._reasons["rejected"] = {HOSTILE: 1}
    run.result["name"] = HOSTILE
    run.result["slo"][HOSTILE] = run.result["slo"]["critical"]
    run.scenario["workload"][0]["name"] = HOSTILE
    pools = run.scenario["serving"]["pools"]
    pools.append({**pools[0], "name": HOSTILE})
    names = [(HOSTILE, replica) for _, replica in run.series.names]
    series = msgspec.structs.replace(run.series, names=names)
    page = render(msgspec.structs.replace(run, series=series))
    assert page.count("&lt;script&gt;") > 10
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page


def test_the_command_makes_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_into(tmp_path, one_server())
    before = page_of(tmp_path)
    (tmp_path / contents.REPORT).unlink()
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path)])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"report is in {tmp_path / contents.REPORT}\n"
    assert page_of(tmp_path) == before
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path), "-o", str(tmp_path / "other.html")])
    assert left.value.code == 0
    assert (tmp_path / "other.html").read_text() == before


FILES = [contents.RESULT, contents.SCENARIO, contents.REQUESTS, contents.TIMELINE]


@pytest.mark.parametrize("name", [*FILES, contents.TOKEN_GAPS])
def test_a_missing_or_damaged_file_is_a_sentence(name: str, tmp_path: Path) -> None:
    run_into(tmp_path, one_server())
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(InputError, match=f"{name}: it is damaged") as caught:
        report_page(tmp_path)
    assert "a folder that `windtunnel simulate` has written" in str(caught.value)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"{name}: there is no such file"):
        report_page(tmp_path)


def test_servers_kept_up_only_where_targets_were_met(tmp_path: Path) -> None:
    for tpot, kept_up in (("10s", True), ("1ms", False)):
        run_into(tmp_path, full(rate=5), f"slo.critical={{ttft: 1m, tpot: {tpot}}}")
        page = html.unescape(page_of(tmp_path))
        assert ("The servers kept up throughout." in page) == kept_up
        assert ("missed their SLO: time per output token" in page) != kept_up
        assert (" slowest requests together " in page) != kept_up


def test_servers_that_were_not_there_did_not_keep_up(tmp_path: Path) -> None:
    crash = "faults=[{kind: engine-crash, at: 10s, select: {count: all}}]"
    slow = "serving.startup={load: {mean: 1h}}"
    run_into(tmp_path, one_server(count=60, rate="1/s", output=14), "duration=60s", crash, slow)
    page = html.unescape(page_of(tmp_path))
    assert "Requests waited for a server while none was ready for " in page
    assert "kept up" not in page
    assert "No stretch of time was saturated." not in page
    assert "on up to 0 of" not in page
