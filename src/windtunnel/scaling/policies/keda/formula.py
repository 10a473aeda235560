"""Formulas over metrics, as in KEDA's `scalingModifiers`: the arithmetic of `expr`.

Numbers, names, `+ - * / % ** ^`, comparisons, `&& || !` (and, or, not), `a ? b : c`, `a ?? b`,
lists, min, max, sum, mean, abs, ceil, floor, round, int, float, and count, any, all and none of a
list with a condition such as `{# > 1}`. As in `expr`, `&&` and `||` stop at the first operand that
decides the result, and division by zero yields infinity.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from windtunnel.core.errors import InputError

Names: TypeAlias = Mapping[str, float]
Part: TypeAlias = Callable[[Names], Any]

DEEPEST: Final = 32
LONGEST: Final = 200
"""Maximum tokens (names, numbers and operators) of a formula."""
LONGEST_SHOWN: Final = 120
"""Maximum characters of a formula quoted in a message."""
ITEM: Final = "#"
ALLOWED: Final = "such as (trigger_one + trigger_two) / 2, of the names of triggers"
_TOKEN: Final = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|([A-Za-z_]\w*|#)|(\*\*|\?\?|&&|\|\||[<>=!]=|[-+*/%^()<>!?:,{}\[\]]))"
)


def _divide(a: Any, b: Any) -> Any:
    """Divides as floating-point arithmetic does, also by zero."""
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a else math.nan


def _power(a: Any, b: Any) -> Any:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 else math.inf
    except ValueError:  # negative power of zero, or fractional power of a negative number
        return math.nan if a else math.inf


def _rounded(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: of(value) if math.isfinite(value) else value


_LEVELS: Final[tuple[dict[str, Callable[[Any, Any], Any] | None], ...]] = (
    {"||": None, "or": None},
    {"&&": None, "and": None},
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divide, "%": math.fmod},
)
"""By precedence; None: the right operand is evaluated only if the left one does not decide."""
_OF_LISTS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
}
_OF_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "abs": abs,
    "ceil": _rounded(math.ceil),
    "floor": _rounded(math.floor),
    "round": _rounded(lambda value: math.floor(value + 0.5)),
    "int": int,
    "float": float,
}
_WITH_CONDITION: Final[dict[str, Callable[[list[bool]], Any]]] = {
    "count": sum,
    "any": any,
    "all": all,
    "none": lambda values: not any(values),
}
FUNCTIONS: Final = (*_OF_LISTS, *_OF_NUMBERS, *_WITH_CONDITION)


class Formula:
    """A parsed formula; `names` are the names that it uses."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self._tokens: Final = list(_tokens(text))
        if len(self._tokens) > LONGEST:
            raise self._wrong(f"it has more than {LONGEST} names, numbers and signs")
        self._at = 0
        self._depth = 0
        self._conditions = 0
        self.names: Final[list[str]] = []
        self._whole: Final = self._choice()
        if self._peek():
            raise self._wrong(f"{self._peek()!r} is not expected there")
        if isinstance(self.value(dict.fromkeys(self.names, 1.0)), bool):
            raise self._wrong("it is true or false, not a number")

    def value(self, names: Names) -> float:
        """Evaluates the formula; NaN if the result is not finite, as after a division by zero."""
        try:
            found = self._whole(names)
            if isinstance(found, bool):
                return found
            return value if math.isfinite(value := float(found)) else math.nan
        except (ArithmeticError, TypeError, ValueError):
            return math.nan

    def _wrong(self, what: str) -> InputError:
        return InputError(
            f"the formula {_shown(self.text)} cannot be read: {what}", allowed=ALLOWED
        )

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        found = self._peek()
        if expected and found not in expected:
            wanted = " or ".join(map(repr, expected))
            raise self._wrong(f"{wanted} is missing" + (f" before {found!r}" if found else ""))
        self._at += 1
        return found

    def _takes(self, word: str) -> bool:
        is_next = self._peek() == word
        self._at += is_next
        return is_next

    def _choice(self) -> Part:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"it is nested deeper than {DEEPEST}")
        found = self._binary(0)
        while self._takes("??"):  # every metric has a value here
            self._binary(0)
        if self._takes("?"):
            then = self._choice()
            self._take(":")
            other, condition = self._choice(), found
            found = lambda names: (then if condition(names) else other)(names)  # noqa: E731
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Part:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take()
            found = _both(sign, _LEVELS[level][sign], found, self._binary(level + 1))
        return found

    def _unary(self) -> Part:
        sign = self._peek()
        if sign in ("-", "+", "!", "not"):
            self._take()
            self._depth += 1
            if self._depth > DEEPEST:
                raise self._wrong(f"it is nested deeper than {DEEPEST}")
            of = self._unary()
            self._depth -= 1
            if sign == "+":
                return of
            return (lambda names: -of(names)) if sign == "-" else (lambda names: not of(names))
        found = self._atom()
        if self._peek() in ("**", "^"):
            self._take()
            return _both("**", _power, found, self._unary())
        return found

    def _atom(self) -> Part:
        word = self._take()
        if not word:
            raise self._wrong("it ends too early")
        if word == "(":
            inner = self._choice()
            self._take(")")
            return inner
        if word == "[":
            return _list(self._list("]"))
        if word[0].isdigit() or word[0] == ".":
            number = float(word)
            return lambda _: number
        if word in FUNCTIONS and self._takes("("):
            return self._call(word)
        if word in ("true", "false"):
            is_true = word == "true"
            return lambda _: is_true
        if not (word[0].isalpha() or word[0] in "_#"):
            raise self._wrong(f"{word!r} is not expected there")
        if word == ITEM and not self._conditions:
            raise self._wrong(f"{ITEM!r} is an item of a list: it belongs into a condition {{...}}")
        if word != ITEM and word not in self.names:
            self.names.append(word)
        return lambda names: names[word]

    def _list(self, end: str) -> list[Part]:
        found: list[Part] = []
        while not self._takes(end):
            if found:
                self._take(",", end)
                if self._tokens[self._at - 1] == end:
                    break
            found.append(self._choice())
        return found

    def _call(self, name: str) -> Part:
        if name not in _WITH_CONDITION:
            given = _list(self._list(")"))
            if name in _OF_NUMBERS:
                of = _OF_NUMBERS[name]
                return lambda names: of(*given(names))
            over = _OF_LISTS[name]
            return lambda names: over(_flat(given(names)))
        items = self._choice()
        self._take(",")
        self._take("{")
        self._conditions += 1
        condition = self._choice()
        self._conditions -= 1
        self._take("}")
        self._take(")")
        judge = _WITH_CONDITION[name]
        return lambda names: judge([condition({**names, ITEM: one}) for one in items(names)])


def _shown(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            what = f"the formula {_shown(text)} cannot be read at {text[at:].strip()[:10]!r}"
            raise InputError(what, allowed=ALLOWED)
        yield found[0].strip()
        at = found.end()


def _both(sign: str, of: Callable[[Any, Any], Any] | None, left: Part, right: Part) -> Part:
    if of is None:
        if sign in ("||", "or"):
            return lambda names: left(names) or right(names)
        return lambda names: left(names) and right(names)
    return lambda names: of(left(names), right(names))


def _list(parts: list[Part]) -> Part:
    return lambda names: [part(names) for part in parts]


def _flat(values: list[Any]) -> list[Any]:
    """The arguments, given one by one or as a list."""
    return [one for value in values for one in (value if isinstance(value, list) else [value])]
