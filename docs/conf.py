"""How Sphinx builds these pages."""

project = "Windtunnel"
author = "The Windtunnel authors"
copyright = "The Windtunnel authors"  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Windtunnel"
myst_heading_anchors = 3
