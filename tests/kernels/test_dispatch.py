"""Which implementation computes, and what is said of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from agentkv.cache.adapter import PagedModel
from agentkv.errors import AgentKVError, Unsupported
from agentkv_kernels import KVFormat, attention, computed_by, dispatch, ops
from agentkv_kernels.dispatch import SettingError, uses_triton
from agentkv_kernels.native import attention as native_attention
from tests.kernels.devices import fast
from tests.kernels.paged_cases import CODED, random_case
from tests.runtime_helpers import tiny_model

triton_attention, blocks = fast("attention"), fast("blocks")
CPU = torch.device("cpu")
interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here, not interpreted")


@pytest.fixture(autouse=True)
def nothing_said_yet(caplog):
    dispatch._choose.cache_clear()
    dispatch.warn_once.cache_clear()
    caplog.set_level(logging.INFO, logger="agentkv_kernels")
    yield
    dispatch._choose.cache_clear()


@pytest.mark.parametrize(
    ("setting", "interpreted", "expected"),
    [
        (None, "1", False),
        ("auto", "1", False),
        ("reference", "1", False),
        ("triton", "1", True),
        ("triton", "0", False),
    ],
)
def test_the_choice_on_a_cpu_is_logged_once(monkeypatch, caplog, setting, interpreted, expected) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    monkeypatch.delenv("AGENTKV_KERNELS", raising=False)
    if setting is not None:
        monkeypatch.setenv("AGENTKV_KERNELS", setting)
    assert [uses_triton(CPU) for _ in range(3)] == [expected] * 3
    (record,) = caplog.records
    refused = setting == "triton" and not expected
    assert record.levelno == (logging.WARNING if refused else logging.INFO)
    assert ("the torch reference in place of Triton" in record.message) == refused


@pytest.mark.parametrize(
    ("setting", "dtype", "compiled", "who"),
    [
        ("auto", torch.bfloat16, True, "C++ for decode steps, torch reference for prompts"),
        ("auto", torch.float16, True, "torch reference"),
        ("auto", torch.bfloat16, False, "torch reference"),
        ("reference", torch.bfloat16, True, "torch reference"),
        ("triton", torch.bfloat16, True, "Triton"),
    ],
)
def test_who_computes_can_be_asked(monkeypatch, setting, dtype, compiled, who) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("AGENTKV_KERNELS", setting)
    monkeypatch.setattr(native_attention, "_kernel", lambda: print if compiled else None)
    assert computed_by(CPU, dtype) == who


def test_an_unknown_choice_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("AGENTKV_KERNELS", "fastest")
    with pytest.raises(SettingError, match="AGENTKV_KERNELS='fastest': it is one of auto, reference, triton"):
        uses_triton(CPU)


def test_a_model_is_not_blamed_for_an_unknown_choice(monkeypatch) -> None:
    monkeypatch.setenv("AGENTKV_KERNELS", "fastest")
    with pytest.raises(AgentKVError) as caught:
        PagedModel(tiny_model("llama", torch.float32))
    assert str(caught.value) == "AGENTKV_KERNELS='fastest': it is one of auto, reference, triton"
    assert not isinstance(caught.value, Unsupported)


def test_without_triton_the_reference_computes_and_says_so(monkeypatch, caplog) -> None:
    monkeypatch.setenv("AGENTKV_KERNELS", "triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(dispatch, "find_spec", lambda name: None)
    assert not uses_triton(CPU)
    assert "pip install 'agentkv[gpu]'" in caplog.text


def attended(monkeypatch, case) -> str:
    """Whose attention ran."""
    ran = []
    for name, module, attribute in (
        ("reference", attention, "paged_mixed_attention"),
        ("by format", ops, "attention_by_format"),
        ("triton", triton_attention, "paged_mixed_attention"),
    ):
        whole = getattr(module, attribute)
        monkeypatch.setattr(
            module, attribute, lambda *a, name=name, whole=whole, **k: ran.append(name) or whole(*a, **k)
        )
    ops.paged_mixed_attention(case.query, case.kv, case.query_index, 0.3)
    return ran[0]


@interpreted
def test_attention_goes_where_the_variable_says(monkeypatch, caplog) -> None:
    same, different = random_case([(20, 9)], CODED[:1]), random_case([(20, 9)] * 2, CODED[:2])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for setting, expected in (("reference", ["reference", "by format"]), ("triton", ["triton", "triton"])):
        monkeypatch.setenv("AGENTKV_KERNELS", setting)
        for case, implementation in zip((same, different), expected, strict=True):
            with monkeypatch.context() as patched:
                assert attended(patched, case) == implementation


def doubled(case):
    return replace(case, query=case.query.double(), kv=replace(case.kv, fp_halves=case.kv.fp_halves.double()))


def odd_pages(case):
    """The same pages of codes, told apart by 12 slots in place of 16; what is in them plays no role here."""
    return replace(case, kv=replace(case.kv, code_halves=case.kv.code_halves[:, :12].contiguous()))


@interpreted
@pytest.mark.parametrize(
    ("make", "lacking"),
    [
        (lambda: doubled(random_case([(20, 9)], CODED[:1])), "dtype torch.float64"),
        (lambda: random_case([(20, 9)], CODED[:1], head_dim=320), "a head size of 320, above 256"),
        (
            lambda: odd_pages(random_case([(20, 9)], [KVFormat.INT8_CHANNEL], code_page=16)),
            "INT8_CHANNEL pages of 12 slots, not a power of two from 16 on",
        ),
    ],
)
def test_what_triton_does_not_support_falls_back_with_one_warning(monkeypatch, caplog, make, lacking) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("AGENTKV_KERNELS", "triton")
    case = make()
    for _ in range(2):
        with monkeypatch.context() as patched:
            assert attended(patched, case) == "reference"
    said = [record.message for record in caplog.records if "paged_mixed_attention" in record.message]
    assert said == [f"paged_mixed_attention: the torch reference in place of Triton, which does not support {lacking}"]


def test_kernels_are_launched_on_the_gpu_that_the_tensors_are_on(monkeypatch) -> None:
    current = [0]

    @contextmanager
    def on(device: torch.device) -> Iterator[None]:
        current.append(device.index)
        yield
        current.pop()

    launched = []
    kernels = SimpleNamespace(ema_mass=lambda *args: launched.append(current[-1]))
    monkeypatch.setattr(ops, "_module", lambda name, device: kernels)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", on)
    for index in (1, 0):
        mass = SimpleNamespace(device=torch.device("cuda", index))
        ops.ema_mass(mass, mass, 0.5)
    assert launched == [1, 0]
    assert current == [0]


@interpreted
def test_float64_keys_are_stored_exactly_with_one_warning(monkeypatch, caplog) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("AGENTKV_KERNELS", "triton")
    key, value = torch.randn(2, 1, 1, 3, 8, dtype=torch.float64)
    rows, targets = torch.zeros(6, 8, dtype=torch.float64), torch.arange(6).view(1, 2, 1, 3)
    for _ in range(2):
        ops.append_kv(key, value, rows, targets)
    assert torch.equal(rows, torch.cat([key, value]).view(6, 8))
    said = [record.message for record in caplog.records if "append_kv" in record.message]
    assert said == ["append_kv: the torch reference in place of Triton, which does not support dtype torch.float64"]


def test_block_sizes_come_from_a_table_and_can_be_overridden(monkeypatch) -> None:
    monkeypatch.delenv("AGENTKV_BLOCKS", raising=False)
    assert blocks.blocks_for(9, 128).slots == 64
    assert blocks.blocks_for(8, 256).rows == 32
    assert blocks.blocks_for(12, 64) == blocks.blocks_for(9, 64)
    monkeypatch.setenv("AGENTKV_BLOCKS", "slots=32, warps=8")
    changed = blocks.blocks_for(9, 128)
    assert (changed.slots, changed.warps, changed.rows) == (32, 8, 64)
    for wrong in ("slots=many", "rings=3", "slots=48", "rows=8", "stages=0"):
        monkeypatch.setenv("AGENTKV_BLOCKS", wrong)
        with pytest.raises(SettingError, match=r"AGENTKV_BLOCKS: .*(cannot read|power of two|at least 1)"):
            blocks.blocks_for(9, 128)
