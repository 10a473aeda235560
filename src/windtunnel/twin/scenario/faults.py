"""The old place of `windtunnel.core.spec.faults`, for code that still looks here."""

from windtunnel.core.spec.faults import *  # noqa: F403
