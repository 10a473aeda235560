"""Keys are taken out of texts and of JSON, whatever surrounds them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.live.wire.keys import Keys, named_key, read_keys


@given(
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
    around=st.text(max_size=20),
)
def test_redacting_takes_out_every_key_in_text_and_in_json(key: str, around: str) -> None:
    keys = Keys({"A": key, "B": key + "-longer"})
    for text in (key, f"{around}{key}{around}", f"{key}{key}-longer"):
        assert key not in keys.redact_text(text).replace("[key]", "")
        encoded = keys.redact(msgspec.json.encode({around: [text, 1.5, None], "k" + key: 3}))
        assert key not in encoded.decode().replace("[key]", "")
        if key.isalnum():
            assert key not in str(msgspec.json.decode(encoded)).replace("[key]", "")
    assert key not in repr(keys)


def test_redacting_leaves_json_whole() -> None:
    """A key of digits may be met inside an escape or a number."""
    keys = Keys({"A": "00000000"})
    for value in ("\x10" + "00000000", {"created": 1000000001, "x": "y"}, ["00000000"]):
        assert b"00000000" not in keys.redact(msgspec.json.encode(value))
        assert msgspec.json.decode(keys.redact(msgspec.json.encode(value))) is not None
    assert keys.redact(b'{"a": 1}') == b'{"a": 1}'


def test_placeholders_are_not_taken_out_of_answers() -> None:
    assert Keys({"A": "EMPTY"}).redact_text("the list is EMPTY") == "the list is EMPTY"


def test_keys_are_stripped_of_the_line_end_that_files_leave() -> None:
    keys = read_keys(["K"], {"K": "sk-from-a-file\n"})
    assert keys.header("K") == "Bearer sk-from-a-file"
    with pytest.raises(InputError, match="is not set"):
        read_keys(["K"], {"K": "  "})


def test_the_usual_variable_is_used_where_it_holds_something() -> None:
    assert named_key(None, {}) == named_key(None, {"OPENAI_API_KEY": " "}) == ""
    assert named_key(None, {"OPENAI_API_KEY": "sk-1"}) == "OPENAI_API_KEY"
    assert named_key("MINE", {"OPENAI_API_KEY": "sk-1"}) == "MINE"
