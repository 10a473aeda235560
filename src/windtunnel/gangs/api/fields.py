"""Value types of Grove's manifests, beyond those that all manifests share."""

import re
from typing import Annotated

from windtunnel.gangs.templates import OFF
from windtunnel.settings.fields import Duration, Leaf, is_not
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, Pattern

LONGEST_DELAY = "100000h"
NEVER_WORD = "Never"


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
                self.fail(f"{value} is more than 100%")
            return 0, share
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(is_not(value, "a whole number or a percentage"))
        if not 0 <= value <= MOST_REPLICAS:
            self.fail(f"{value} is too {'small' if value < 0 else 'large'}")
        return value, 0.0


_DOMAIN_RULE = "a small letter, then small letters, digits and '-'"
Domain = Annotated[str, Pattern("a domain", re.compile(r"[a-z][a-z0-9-]{0,62}"), 63, _DOMAIN_RULE)]
LabelMap = dict[AnyText, AnyText]
