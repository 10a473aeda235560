"""Certificates of the webhooks: for which names, how long, and whom clients trust meanwhile."""

import ssl

import pytest

from windtunnel.live.operate.certificates import VALID_DAYS, Minted, mint

NOW_S = 1.8e9
DAY_S = 86_400.0
NAMES = ["127.0.0.1", "windtunnel-webhook.windtunnel.svc"]


def test_a_certificate_is_due_after_two_thirds_and_for_other_names() -> None:
    minted = mint(NAMES, NOW_S)
    assert not minted.due(NAMES, NOW_S)
    assert not minted.due(NAMES, NOW_S + (VALID_DAYS * 2 / 3 - 1) * DAY_S)
    assert minted.due(NAMES, NOW_S + VALID_DAYS * 2 / 3 * DAY_S)
    assert minted.due(["other.svc"], NOW_S)


def test_one_from_a_clock_that_is_ahead_is_replaced() -> None:
    """The API server refuses it until then; an hour or two ahead, it takes it."""
    assert mint(NAMES, NOW_S + 7 * DAY_S).due(NAMES, NOW_S)
    assert not mint(NAMES, NOW_S + DAY_S / 12).due(NAMES, NOW_S)


@pytest.mark.parametrize("part", range(2))
def test_what_is_garbled_or_does_not_fit_is_due(part: int) -> None:
    minted, other = mint(NAMES, NOW_S), mint(NAMES, NOW_S)
    parts = list(minted)
    parts[part] = b"no PEM"
    assert Minted(*parts).due(NAMES, NOW_S)
    parts[part] = other[part]
    assert Minted(*parts).due(NAMES, NOW_S), "a key of another certificate"


def test_the_authority_before_is_trusted_and_the_one_before_that_is_not() -> None:
    first = mint(NAMES, NOW_S)
    second = mint(NAMES, NOW_S, first)
    third = mint(NAMES, NOW_S, second)
    ours = [second.authorities.split(b"\n-----END")[0], third.authorities.split(b"\n-----END")[0]]
    assert first.authorities in second.authorities
    assert ours[0] in third.authorities
    assert first.authorities not in third.authorities
    for one, authorities in ((first, 1), (second, 2), (third, 2)):
        context = ssl.create_default_context(cadata=one.authorities.decode())
        assert context.cert_store_stats()["x509_ca"] == authorities
