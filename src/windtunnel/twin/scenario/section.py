"""The old place of `windtunnel.core.spec.section`, for code that still looks here."""

from windtunnel.core.spec.section import *  # noqa: F403
