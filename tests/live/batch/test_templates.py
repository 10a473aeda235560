"""Templates: what they would make too long is a sentence, not the end of the memory."""

import pytest

from windtunnel.live.batch.templates import LONGEST_PROMPT, PromptTemplate, Unfilled

TOO_LONG = [
    "{{ text * 100000000000 }}",
    "{{ 100000000000 * text }}",
    "{{ [1] * 100000000000 }}",
    "{{ 9 ** 999999999 }}",
    "{{ '%99999999999d' % 1 }}",
    "{{ text | center(100000000000) }}",
    "{{ text.ljust(100000000000) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ text }}{% endfor %}{% endfor %}",
]


@pytest.mark.parametrize("text", TOO_LONG)
def test_a_prompt_without_end_is_a_sentence(text: str) -> None:
    with pytest.raises(Unfilled, match=r"more than 16,777,216 characters|ljust"):
        PromptTemplate(text, "--template").fill({"text": "x" * 50})


def test_a_prompt_up_to_the_bound_is_filled() -> None:
    text = PromptTemplate("{{ text * 2 }}", "--template").fill(
        {"text": "x" * (LONGEST_PROMPT // 2)}
    )
    assert len(text) == LONGEST_PROMPT


def test_what_templates_usually_do_is_done() -> None:
    text = "{{ 2 ** 10 }} {{ 'ab' * 3 }} {{ 3 * 4 }} {{ 7 % 4 }} {{ '%05d' % 42 }}"
    assert PromptTemplate(text, "--template").fill({}) == "1024 ababab 12 3 00042"
    assert PromptTemplate("{{ t | center(5) }}", "--template").fill({"t": "x"}) == "  x  "
