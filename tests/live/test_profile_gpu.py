"""The measuring program, as far as it goes without a GPU."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel.cli.profile import decoder_shape
from windtunnel.core.errors import InputError
from windtunnel.live.profile_gpu import SmallKernels, StepPoint, grid, measure


def test_the_grid_has_every_kind_of_step() -> None:
    points = list(grid())
    assert len(points) == 9 * 7 + 9 * 3 + 4 * 3 * 2
    assert all(point.prefill + point.decodes > 0 for point in points)
    assert sum(1 for point in points if point.prefill and point.decodes) == 24


def test_any_beginning_of_the_grid_has_every_kind_of_step() -> None:
    points = list(grid())
    for beginning in (points[:23], points[:46]):
        decodes = [point for point in beginning if not point.prefill]
        prefills = [point for point in beginning if not point.decodes]
        assert min(point.decodes for point in decodes) == 1
        assert max(point.decodes for point in decodes) == 256
        assert {point.prior for point in prefills} == {0, 2048, 8192}
        assert max(point.prefill for point in prefills) >= 4096
        assert len(beginning) - len(decodes) - len(prefills) >= 4


def test_sizes_of_a_slice() -> None:
    shape = decoder_shape("llama-3.1-70b-tp8-slice")
    assert (shape.heads, shape.kv_heads, shape.ffn, shape.vocab) == (8, 1, 3584, 16032)
    assert shape.weight_bytes == pytest.approx(17.65e9, rel=0.01)
    assert shape.cache_bytes(StepPoint(0, 0, 2, 99)) == 200 * 80 * 2 * 128 * 2


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gemma-3-4b"])
def test_only_plain_dense_models_are_measured(name: str) -> None:
    with pytest.raises(InputError, match="dense models with plain attention"):
        decoder_shape(name)


def test_without_pytorch_there_is_an_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"needs PyTorch \(pip install .*\[profile\]"):
        measure([decoder_shape("llama-3.1-8b")], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_without_a_gpu_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __spec__=object()))
    with pytest.raises(InputError, match="finds no GPU"):
        measure([decoder_shape("llama-3.1-8b")], tmp_path / "out.jsonl")


def test_a_pytorch_that_cannot_compile_is_a_sentence() -> None:
    def compiled(*_: object) -> None:
        raise RuntimeError("no C compiler")

    torch = SimpleNamespace(
        _dynamo=SimpleNamespace(reset=lambda: None),
        compile=lambda _: compiled,
        ones=lambda *_, **__: None,
        bfloat16=None,
    )
    with pytest.raises(InputError, match="cannot compile kernels here"):
        SmallKernels(torch, decoder_shape("llama-3.1-8b"))
