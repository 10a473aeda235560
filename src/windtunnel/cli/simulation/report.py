"""`windtunnel report`: regenerates the report of a run from the files in its folder."""

from pathlib import Path

import click

from windtunnel.cli.options import FILE, PLACE, option
from windtunnel.cli.places import keep_apart, write_file


@click.command()
@click.argument("folder", type=FILE)
@option(
    "-o --output",
    PLACE,
    "Where to write the report. [default: report.html in the folder]",
    metavar="FILE",
)
def report(folder: Path, output: str | None) -> None:
    """Regenerate the report of a run.

    Reads the files that `windtunnel simulate` left in FOLDER and writes report.html: one file that
    opens in any browser, offline.
    """
    from windtunnel.analysis.run_folder import ALL, REPORT
    from windtunnel.report.page.render import report_page

    read = {f"{name} of the run": folder / name for name in ALL if name != REPORT}
    keep_apart(read, {"-o": output})
    page = report_page(folder)
    path = Path(output) if output is not None else folder / REPORT
    write_file("-o", path, page)
    click.echo(f"report is in {path}")
