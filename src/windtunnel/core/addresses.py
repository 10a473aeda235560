"""Checks HTTP server addresses that users write; a password in an address is never shown."""

from urllib.parse import urlsplit

LONGEST_SHOWN = 80


def address_fault(url: str) -> str:
    """Why `url` is not the address of an HTTP server; empty when it is one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    printable = url.isascii() and not any(letter <= " " or letter == "\x7f" for letter in url)
    if parts.scheme not in ("http", "https") or not host or not printable:
        shown = url.rpartition("@")[2].partition("?")[0][:LONGEST_SHOWN]
        return f"{shown!r} is not an http:// or https:// address"
    if parts.username is not None or parts.password is not None:
        return "an address has no user and no password"
    return ""
