"""Catalog models have the parameter counts their publishers state, and names resolve or explain."""

from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.models import MODELS, resolve_model

# Billions, as published: model cards, technical reports, and the checkpoints' own tensor counts.
# Language model only: multimodal checkpoints also have an encoder. DeepSeek-V3 without its
# extra prediction layer, Llama 4 with its 0.9 billion of vision.
PUBLISHED = {
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6,
    "llama-3.1-405b": 406.0,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "llama-3.3-70b": 70.6,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-1.5b": 1.54,
    "qwen2.5-3b": 3.09,
    "qwen2.5-7b": 7.62,
    "qwen2.5-14b": 14.8,
    "qwen2.5-32b": 32.8,
    "qwen2.5-72b": 72.7,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.8,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.0,
    "mistral-7b": 7.25,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141.0,
    "deepseek-v3": 671.0,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 117.0,
    "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77,
    "gemma-3-27b": 27.02,
    "phi-4": 14.7,
    "llama-4-scout": 109.0,
    "llama-4-maverick": 402.0,
}
PUBLISHED_ACTIVE = {
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.0,
    "deepseek-v3": 37.0,
    "gpt-oss-20b": 3.6,
    "gpt-oss-120b": 5.1,
    "qwen3-235b-a22b": 22.0,
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameters_match_the_published_count(name: str) -> None:
    assert MODELS[name].params / 1e9 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize("name", sorted(PUBLISHED_ACTIVE))
def test_active_parameters_match_the_published_count(name: str) -> None:
    assert MODELS[name].active_params / 1e9 == pytest.approx(PUBLISHED_ACTIVE[name], rel=0.03)


def test_the_published_list_and_the_catalog_hold_the_same_models() -> None:
    assert sorted(PUBLISHED) == sorted(MODELS)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("LLAMA-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("microsoft/phi-4", "phi-4"),
    ],
)
def test_hugging_face_ids_name_the_same_shapes(text: str, name: str) -> None:
    assert resolve_model(text) is MODELS[name]


def test_a_slice_is_one_gpus_part() -> None:
    part = resolve_model("llama-3.1-70b-tp8-slice")
    found = (
        part.layers,
        part.hidden,
        part.heads,
        part.kv_heads,
        part.head_dim,
        part.ffn,
        part.vocab,
    )
    assert found == (80, 8192, 8, 1, 128, 3584, 16032)
    assert part.name == "llama-3.1-70b-tp8-slice"


@pytest.mark.parametrize("text", ["llama-3.1-70b-tp3-slice", "llama-3.1-70b-tp0-slice"])
def test_a_slice_that_does_not_divide_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="64 attention heads"):
        resolve_model(text)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'lama-3.1-8b'.*did you mean 'llama-3.1-8b'"):
        resolve_model("lama-3.1-8b")


@pytest.mark.parametrize("text", ["", "\0", "x" * 5000, "/", "nowhere/config.json", "-tp8-slice"])
def test_hostile_names_get_a_sentence(text: str) -> None:
    with pytest.raises(InputError):
        resolve_model(text)


def test_a_path_is_read_as_a_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,'
        ' "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 512}'
    )
    assert resolve_model(str(folder)).name == "tiny"
    assert resolve_model(str(folder / "config.json")).layers == 2
