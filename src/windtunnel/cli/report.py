"""`windtunnel report`: makes the report of a run again, from the files in its folder."""

from pathlib import Path

import click

from windtunnel.cli.places import keep_apart


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write the report. [default: report.html in the folder]",
)
def report(folder: Path, output: str | None) -> None:
    """Write the report of a run again.

    Reads the files that `windtunnel simulate` left in FOLDER and writes report.html: one file that
    opens in any browser, offline.
    """
    from windtunnel.analysis.run_folder import ALL, REPORT
    from windtunnel.report.files.folder import WholeFile
    from windtunnel.report.page.render import report_page

    read = {f"{name} of the run": folder / name for name in ALL if name != REPORT}
    keep_apart(read, {"-o": output})
    page = report_page(folder)
    path = Path(output) if output is not None else folder / REPORT
    with WholeFile(path, "-o") as file:
        file.finish(page.encode())
    click.echo(f"report is in {path}")
