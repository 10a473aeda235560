"""The progress line: on a terminal, after two seconds, one line that is gone at the end."""

import io

import pytest

from tests.twin.runs import BUSY
from windtunnel.report.terminal.progress import CLEAR, bar, counting, progress, status_line
from windtunnel.twin.compose import compose
from windtunnel.twin.run import breathe
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.simulation import Simulation


class Terminal(io.StringIO):
    """A terminal of 80 columns that keeps what was written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """One that has run, so that there is something to tell."""
    monkeypatch.setenv("TERM", "xterm")
    built = compose(load_text(BUSY))
    built.run(breathe)
    return built


def drawn(looks_s: list[float], simulation: Simulation, duration_s: float | None = 2.0) -> str:
    """What a terminal is sent when the simulation is looked at after these seconds."""
    times = iter([100.0, *(100.0 + time for time in looks_s)])
    terminal = Terminal()
    with progress(duration_s, terminal, lambda: next(times)) as look:
        assert look is not None
        for _ in looks_s:
            look(simulation)
    return terminal.getvalue()


def test_a_short_run_shows_nothing(simulation: Simulation) -> None:
    assert drawn([0.1, 1.0, 1.999], simulation) == ""


def test_a_longer_run_shows_a_line_and_takes_it_back(simulation: Simulation) -> None:
    events = simulation.events
    text = drawn([1.0, 2.0], simulation)
    cleared, line, last = text.split(CLEAR)
    assert (cleared, last) == ("", "")
    assert line.startswith("simulated 2 s of 2 s (100%)   ")
    assert f"{simulation.recorder.ended} requests done" in line
    assert line.endswith(f"{events / 2:.0f} events/s")
    assert "\n" not in text


def test_without_a_duration_there_is_no_share(simulation: Simulation) -> None:
    assert "simulated 2 s   " in drawn([3.0], simulation, None)


def test_it_is_drawn_ten_times_a_second_at_most(simulation: Simulation) -> None:
    text = drawn([2.0 + step / 100 for step in range(100)], simulation)
    assert 9 <= text.count("simulated") <= 11


def test_a_narrow_terminal_gets_what_fits(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windtunnel.report.terminal.progress.USUAL_COLUMNS", 20)
    line = drawn([2.5], simulation).split(CLEAR)[1]
    assert line == "simulated 2 s of 2 "


def test_in_a_file_there_is_a_line_every_half_minute() -> None:
    times = iter([0.0, 10.0, 31.0, 40.0, 62.0])
    file = io.StringIO()
    with status_line(file, 0.0, lambda: next(times), anywhere=True) as line:
        assert line is not None
        for _ in range(4):
            line.show(lambda elapsed_s: f"after {elapsed_s:g} s")
    assert file.getvalue() == "after 31 s\nafter 62 s\n"
    with status_line(file) as line:
        assert line is None


def test_it_is_taken_back_when_the_run_fails(simulation: Simulation) -> None:
    times = iter([0.0, 5.0])
    terminal = Terminal()

    def interrupted() -> None:
        with progress(None, terminal, lambda: next(times)) as look:
            assert look is not None
            look(simulation)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "simulated" in terminal.getvalue()
    assert terminal.getvalue().endswith(CLEAR)


def test_nobody_looks_where_nobody_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress(1.0, io.StringIO()) as look:
        assert look is None
    monkeypatch.setenv("TERM", "dumb")
    with progress(1.0, Terminal()) as look:
        assert look is None


def test_runs_are_counted_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    times = iter([100.0, 101.0, 102.5, 103.0])
    with counting("runs", terminal, lambda: next(times)) as tell:
        for count in (1, 2, 3):
            tell(count, 9)
    second, third = "2 of 9 runs, about 8.75 s left", "3 of 9 runs, about 6 s left"
    assert terminal.getvalue() == f"{CLEAR}{second}{CLEAR}{third}{CLEAR}"
    silent = io.StringIO()
    with counting("runs", silent) as tell:
        tell(1, 2)
    assert silent.getvalue() == ""


def test_a_bar_shows_how_many_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with bar("runs", terminal) as tell:
        tell(3, 8, 3)
        tell(4, 8, 3)
    assert "runs" in terminal.getvalue()
    assert "3 from before" in terminal.getvalue()
    quiet = io.StringIO()
    with bar("runs", quiet) as tell:
        tell(1, 8, 0)
    assert quiet.getvalue() == ""


def test_a_pipe_gets_a_line_every_half_minute() -> None:
    pipe = io.StringIO()
    times = iter([0.0, 20.0, 40.0, 50.0, 80.0])
    with bar("runs", pipe, lambda: next(times)) as tell:
        tell(100, 1000, 0, "1 broken")
        tell(200, 1000, 0)
        tell(250, 1000, 0)
        tell(400, 1000, 0, "2 broken")
    assert pipe.getvalue() == (
        "200 of 1,000 runs, about 2 min 40 s left, 1 broken\n"
        "400 of 1,000 runs, about 2 min left, 2 broken\n"
    )
    times = iter([0.0, 31.0])
    pipe = io.StringIO()
    with counting("runs", pipe, lambda: next(times)) as tell:
        tell(0, 9, "2 x h100")
    assert pipe.getvalue() == "0 of 9 runs, 2 x h100\n"
