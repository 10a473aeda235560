"""A page of the product as a figure: shown in a notebook, or saved to a file."""

from html import escape
from pathlib import Path

from windtunnel.core.files import writing

HEIGHT_PX = 720


class FigurePage:
    """A self-contained page with charts: it loads no other file and contacts no host."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | Path) -> Path:
        """Writes the page, and returns its path."""
        place = Path(path)
        with writing(place, what="cannot write the page"):
            place.write_text(self.html, encoding="utf-8")
        return place

    def __repr__(self) -> str:
        return f"<figure, {len(self.html.encode()):,} bytes of HTML: a notebook shows it>"

    def _repr_html_(self) -> str:
        # A frame keeps the page's styles and scripts to itself, and those of the notebook out.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="Windtunnel" '
            f'style="width: 100%; height: {HEIGHT_PX}px; border: 0"></iframe>'
        )
