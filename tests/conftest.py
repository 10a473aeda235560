"""What every test shares: how hard hypothesis tries, and the form that is under test."""

import os

from hypothesis import settings

import windtunnel

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Whatever a test starts runs in the form that is under test.
os.environ["WINDTUNNEL_FORM"] = windtunnel.FORM


def pytest_report_header() -> str:
    return f"windtunnel: {windtunnel.FORM} form"
