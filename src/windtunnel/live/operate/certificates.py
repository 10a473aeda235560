"""Certificates of the webhooks: minted by the operator, each with its own CA.

The CA's key is discarded once it has signed. The certificate, its key and a bundle of CAs are kept:
the new CA and the previous one, so that replicas that still serve the old certificate are trusted.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_DAYS: Final = 90
EARLIER: Final = datetime.timedelta(days=1)
"""Backdating of a certificate, for an API server whose clock is behind."""
BEGIN: Final = b"-----BEGIN CERTIFICATE-----"


class Minted(NamedTuple):
    """In PEM: a certificate, its key, and the CAs that clients should trust."""

    certificate: bytes
    key: bytes
    authorities: bytes

    def due(self, names: Sequence[str], now_s: float) -> bool:
        """Whether a new one must be minted: two thirds of its lifetime are over, it is not valid
        yet (minted by a replica whose clock is ahead), its names differ, or it is unreadable."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(self.key, None)
            found = x509.load_pem_x509_certificate(self.certificate)
            kind = x509.SubjectAlternativeName
            held = found.extensions.get_extension_for_class(kind).value
        except (ValueError, TypeError, x509.ExtensionNotFound):
            return True
        fits = found.public_key() == key.public_key()
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
        rotate = begins + (ends - begins) * 2 / 3
        in_time = begins <= _date(now_s) < rotate
        return not in_time or not fits or {str(one.value) for one in held} != set(names)


def mint(names: Sequence[str], now_s: float, before: Minted | None = None) -> Minted:
    """A certificate for these host names and addresses, valid from now on."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("windtunnel webhooks")
    authority = (
        _builder(issuer, issuer, authority_key, now_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    called = x509.SubjectAlternativeName([_alternative(one) for one in names])
    certificate = (
        _builder(_name(names[0][:64]), issuer, key, now_s)
        .add_extension(called, critical=False)
        .add_extension(use, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    kept = b"" if before is None else _first(before.authorities)
    return Minted(
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        authority.public_bytes(pem) + kept,
    )


def _first(bundle: bytes) -> bytes:
    """The newest CA of a bundle."""
    _, begin, rest = bundle.partition(BEGIN)
    return begin + rest.partition(BEGIN)[0]


def _date(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC)


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now_s: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = _date(now_s)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )
