"""The kinds of value that Grove's manifests have beside those of every file."""

import re
from typing import Annotated, Any

from windtunnel.gangs.templates import OFF
from windtunnel.settings.fields import Duration, Flag, Leaf, Whole, is_not, shown

MOST_REPLICAS = 100_000
LONGEST_DELAY = "100000h"
LONGEST_VALUE = 262_144
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DOMAIN = re.compile(r"[a-z][a-z0-9-]{0,62}")
LONGEST_DNS_NAME = 253
NEVER_WORD = "Never"


class _Pattern(Leaf):
    """Text of one form."""

    def __init__(self, noun: str, pattern: re.Pattern[str], most: int, allowed: str) -> None:
        self.noun, self.pattern, self.most = noun, pattern, most
        self.allowed = allowed
        self.schema = {"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": most}

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), "put it in quotes" if value is not None else None)
        if len(value) > self.most or not self.pattern.fullmatch(value):
            self.fail(is_not(value, self.noun))
        return value


class Value(Leaf):
    """The value of a label or an annotation: any text, also none."""

    allowed = "text"
    schema = {"type": "string", "maxLength": LONGEST_VALUE}  # noqa: RUF012 - a constant

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"), "put it in quotes" if value is not None else None)
        if len(value) > LONGEST_VALUE:
            self.fail(f"{shown(value)} is too long ({len(value)} characters)")
        return value


class Delay(Duration):
    """A duration above zero, or `Never`."""

    def __init__(self) -> None:
        super().__init__("0s", LONGEST_DELAY, above=True)
        self.allowed += f", or {NEVER_WORD}"
        self.schema = {"anyOf": [{"const": NEVER_WORD}, self.schema]}

    def check(self, value: object) -> float:
        return OFF if value == NEVER_WORD else super().check(value)


class CountOrShare(Leaf):
    """A whole number, or a percentage of the replicas."""

    allowed = f"a whole number from 0 to {MOST_REPLICAS}, or a percentage such as 25%"
    schema = {  # noqa: RUF012 - a constant
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+%$"}]
    }

    def check(self, value: object) -> tuple[int, float]:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}%", value):
            share = int(value[:-1]) / 100
            if share > 1:
                self.fail(f"{value} is more than all of them")
            return 0, share
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(is_not(value, "a whole number or a percentage"))
        if not 0 <= value <= MOST_REPLICAS:
            self.fail(f"{value} is too {'small' if value < 0 else 'large'}")
        return value, 0.0


_LABEL_RULE = "small letters, digits and '-', at most 63, the first and last no '-'"
Count = Annotated[int, Whole(0, MOST_REPLICAS)]
Label = Annotated[str, _Pattern("a DNS label", DNS_LABEL, 63, _LABEL_RULE)]
DnsName = Annotated[
    str,
    _Pattern(
        "a DNS name",
        DNS_NAME,
        LONGEST_DNS_NAME,
        f"small letters, digits, '-' and '.', at most {LONGEST_DNS_NAME}",
    ),
]
Domain = Annotated[
    str,
    _Pattern("a domain", DOMAIN, 63, "a small letter, then small letters, digits and '-'"),
]
Words = Annotated[str, Value()]
LabelMap = dict[Words, Words]
Switch = Annotated[bool, Flag()]
Opaque = dict[str, Any]
