"""One table of what benchmarks/gpu.sh has measured; also written to summary.json beside its inputs.

python benchmarks/gpu_table.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """A JSONL file's objects; [] if it is not there. Lines that are not JSON are what a time limit cut off."""
    path = folder / f"{name}.jsonl"
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def lines_of(parts: list[dict[str, Any]], kernels: list[Any], decode: list[Any], blocks: list[Any]) -> list[list[str]]:
    """What was measured, figures, and a remark."""
    lines = []
    for part in parts:
        how = {0: "passed", 124: "OUT OF TIME"}.get(part["exit"], f"FAILED ({part['exit']})")
        lines.append([f"part {part['part']}", how, f"{part['seconds']} s"])
    lines += [["copy", f"{row['gb_per_s']:.0f} GB/s", ""] for row in kernels if row["op"] == "copy"]
    lines += [attention_line(row) for row in kernels if row["op"].startswith("attention")]
    under = "table"
    for row in blocks:
        if "blocks" in row:
            under = row["blocks"]
        elif row["op"] == "attention" and row["impl"] != "sdpa":
            lines.append([f"blocks {under}", *attention_line(row)[1:]])
    lines += [decode_line(row) for row in decode]
    return lines


def decode_line(row: dict[str, Any]) -> list[str]:
    how = "graphs" if row["graphs"] else "no graphs"
    budget = f" {row['budget']}" if row["budget"] else ""
    what = f"decode {row['policy']}{budget}, batch {row['batch']}, {row['logical_length']:,} tokens, {how}"
    if "error" in row:
        return [what, "FAILED", row["error"]]
    figures = f"{row['ms_median']:.2f} ms a step, {row['tokens_per_s']:.0f} tokens/s"
    return [what, figures, f"KV {row['kv_bytes'] / 2**20:,.0f} MiB, {row['kernels']}"]


def attention_line(row: dict[str, Any]) -> list[str]:
    coded = f" {row['coded']}%" if row["coded"] else ""
    what = f"{row['op']} by {row['impl']}, {row['format']}{coded}, batch {row['batch']}, {row['slots']:,} slots"
    figures = f"{row['us_median']:.1f} µs, {row['gb_per_s']:.0f} GB/s, {row['share_of_copy']:.0%} of copy"
    if row["sdpa_ratio"] is not None:
        figures += f", {row['sdpa_ratio']:.2f}× sdpa in FP"
    return [what, figures, "" if row["max_error"] is None else f"error {row['max_error']:.1e}"]


def main(folder: Path) -> int:
    """Print and write; 1 if a part failed."""
    found = {name: rows_of(folder, name) for name in ("parts", "kernels", "decode", "blocks")}
    lines = lines_of(**found)
    widths = [max(len(line[column]) for line in lines) for column in range(3)] if lines else []
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    (folder / "summary.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return int(not found["parts"] or any(part["exit"] for part in found["parts"]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
