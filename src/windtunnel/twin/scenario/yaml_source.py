"""The old place of `windtunnel.core.spec.yaml_source`, for code that still looks here."""

from windtunnel.core.spec.yaml_source import *  # noqa: F403
