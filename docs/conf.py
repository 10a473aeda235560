"""How Sphinx builds these pages."""

import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import gallery  # noqa: E402 - beside this file

import windtunnel  # noqa: E402

project = "Windtunnel"
author = "The Windtunnel authors"
copyright = "The Windtunnel authors"  # noqa: A001 - the name that Sphinx reads
version = release = windtunnel.__version__
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Windtunnel {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = [f"examples/{gallery.EXTRA}"]
myst_heading_anchors = 3

(gallery.PAGES / gallery.EXTRA).mkdir(parents=True, exist_ok=True)  # Sphinx wants it there


def write_examples(app: Sphinx) -> None:
    try:
        gallery.write_pages(runs=app.config.run_examples)
    except ValueError as error:
        raise ExtensionError(str(error)) from error


def to_the_gallery(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Readers of the repository get the list of examples, readers of the site the gallery."""
    source[0] = source[0].replace("](../examples/README.md)", "](examples/index.md)")


def setup(app: Sphinx) -> None:
    app.add_config_value("run_examples", default=True, rebuild="env", types=[bool, int, str])
    app.connect("builder-inited", write_examples)
    app.connect("source-read", to_the_gallery)
