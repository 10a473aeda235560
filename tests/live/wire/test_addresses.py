"""Addresses are taken as people write them, and a bad one is a sentence without secrets."""

import pytest

from windtunnel.core.errors import InputError
from windtunnel.live.wire.addresses import checked_url


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1"),
        ("https://api.example.com/openai/v1", "https://api.example.com/openai/v1"),
        ("https://api.example.com/openai", "https://api.example.com/openai"),
        ("http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_an_address_is_with_or_without_its_version(written: str, url: str) -> None:
    assert checked_url(written, "--endpoint") == url


@pytest.mark.parametrize(
    "written",
    [
        "",
        "localhost:8000",
        "ftp://x",
        "http://",
        "http://u:secret@x",
        "http://x:99999",
        "http://x/v1?key=secret",
        "http://[::1",
    ],
)
def test_a_bad_address_is_a_sentence_without_secrets(written: str) -> None:
    with pytest.raises(InputError, match="--endpoint") as caught:
        checked_url(written, "--endpoint")
    assert "secret" not in str(caught.value)
