"""The kernel bench: what it counts, what it checks, what it prints."""

from __future__ import annotations

import json

import pytest
import torch

from agentkv import cli
from agentkv_evals import bench_kernels, kernel_cases
from agentkv_evals.bench_kernels import KernelOptions, KernelRow, with_ratios
from agentkv_evals.errors import EvalError
from agentkv_evals.kernel_cases import Shape, random_kv
from agentkv_kernels import KVFormat

SMALL = KernelOptions(batches=(2,), slots=(96,), groups=(3,), coded=(0, 50), kv_heads=2, head_dim=16, device="cpu")


def shape(**changes) -> Shape:
    given = {"batch": 2, "slots": 96, "coded": 0.5, "group": 3, "kv_heads": 2, "head_dim": 16}
    given |= {"dtype": torch.bfloat16, "fmt": KVFormat.INT8_TOKEN, "device": torch.device("cpu")}
    return Shape(**(given | changes))


@pytest.mark.parametrize("fmt", [KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN, KVFormat.INT8_CHANNEL])
@pytest.mark.parametrize("coded", [0.0, 0.3, 1.0])
def test_counted_bytes_are_those_of_the_tensors_that_are_read(fmt, coded) -> None:
    at = shape(fmt=fmt, coded=coded)
    query, kv, _ = random_kv(at)
    assert kv.code_slots == at.code_slots == round(96 * coded / 32) * 32
    pages = kv.fp_index.numel() * kv.fp_halves[0].nbytes + kv.code_index.numel() * kv.code_halves[0].nbytes
    assert at.payload == pages
    scales = kv.scales[1].nbytes if fmt is KVFormat.INT8_CHANNEL else kv.scales.nbytes
    channels = 0 if kv.channel_scales is None else kv.channel_scales.nbytes
    tables = kv.fp_index.nbytes + kv.code_index.nbytes + kv.token_index.nbytes
    assert at.attention_bytes == pages + scales + channels + tables + 2 * query.nbytes


def test_json_rows_have_the_stable_fields(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(bench_kernels, "_SECONDS", {"cpu": 0.0})
    monkeypatch.setattr(bench_kernels, "_COPY_BYTES", {"cpu": 2**20})
    flags = ["--batch", "2", "--slots", "96", "--group", "3", "--coded", "0", "--coded", "50", "--kv-heads", "2"]
    flags += ["--head-dim", "16", "--device", "cpu", "--refcheck", "--plot", str(tmp_path / "roof.svg")]
    assert cli.run(["bench", "kernels", *flags, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stable = {"bench", "op", "format", "batch", "slots", "bytes", "us_median", "gb_per_s", "share_of_copy"}
    assert all(stable <= row.keys() and row["bench"] == "kernels" for row in rows)
    attention = [row["op"] for row in rows if row["op"].startswith("attention")]
    assert attention == ["attention", "attention+mass", "attention", "attention", "attention+mass"]
    assert {row["op"] for row in rows} > {"copy", "append", "demote", "compact", "ema_mass", "confidence"}
    checked = [row for row in rows if row["max_error"] is not None]
    assert len(checked) == 4
    assert all(0 < row["max_error"] < 1e-5 for row in checked)
    assert all(row["sdpa_ratio"] is not None for row in checked)
    assert "copy's bandwidth" in (tmp_path / "roof.svg").read_text()
    assert cli.run(["bench", "kernels", *flags]) == 0
    assert "INT8_TOKEN 67%" in capsys.readouterr().out  # in whole pages of codes


def test_a_wrong_result_is_an_error(monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench_kernels, "_SECONDS", {"cpu": 0.0})
    monkeypatch.setattr(bench_kernels, "_COPY_BYTES", {"cpu": 2**20})
    right = kernel_cases.paged_mixed_attention

    def wrong(*args, **options):
        result = right(*args, **options)
        return result._replace(out=result.out * 1.01)

    monkeypatch.setattr(kernel_cases, "paged_mixed_attention", wrong)
    options = KernelOptions(**{**vars_of(SMALL), "refcheck": True})
    assert bench_kernels.run(options) == 1
    assert "WRONG: attention FP batch 2 slots 96: 0.01" in capsys.readouterr().err


def vars_of(options: KernelOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def test_ratios_are_to_torchs_attention_of_the_same_shape() -> None:
    def row(op: str, impl: str, slots: int, us: float) -> KernelRow:
        return KernelRow(op, impl, "FP", 1, slots, 4, 0, 100, us, 1.0, 0.5)

    rows = with_ratios(
        [row("attention", "sdpa", 64, 10.0), row("attention", "triton", 64, 5.0), row("attention", "triton", 128, 5.0),
         row("append", "triton", 64, 5.0)]
    )  # fmt: skip
    assert [r.sdpa_ratio for r in rows] == [1.0, 2.0, None, None]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"format": "FP"}, "unknown --format 'FP'; there are: INT8_TOKEN, FP8_TOKEN, INT8_CHANNEL"),
        ({"dtype": "int8"}, "unknown --dtype 'int8'"),
        ({"coded": (101,)}, "a percentage"),
        ({"slots": (0,)}, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, said) -> None:
    with pytest.raises(EvalError, match=said):
        KernelOptions(**wrong)
