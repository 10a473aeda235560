"""What every test shares: how hard hypothesis tries, and the form that is under test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

import windtunnel

settings.register_profile("quick", max_examples=20, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Whatever a test starts runs in the form that is under test.
os.environ["WINDTUNNEL_FORM"] = windtunnel.FORM


def pytest_report_header() -> str:
    return f"windtunnel: {windtunnel.FORM} form"


HERE = Path(__file__).parent
FORMLESS = [
    HERE / folder
    for folder in ("cli", "live", "report", "scaling/manifests", "search", "twin/scenario")
]
"""Drivers and files around the compiled modules, which have tests of their own: once is enough."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in FORMLESS):
            item.add_marker(pytest.mark.once)
