"""The old place of `windtunnel.core.spec.fields`, for code that still looks here."""

from windtunnel.core.spec.fields import *  # noqa: F403
