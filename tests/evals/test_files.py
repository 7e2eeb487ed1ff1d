from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_evals import files
from agentkv_evals.errors import EvalError
from agentkv_evals.provenance import describe, git_state

rows = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=12), max_size=3), max_size=6)


@given(rows, st.integers(0, 400))
def test_a_file_cut_anywhere_gives_its_whole_rows_and_can_go_on(data: list[dict[str, str]], cut: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        for row in data:
            files.append_line(path, row, durable=False)
        whole = path.read_bytes() if data else b""
        path.write_bytes(whole[:cut])
        kept = files.read_lines(path)
        assert kept == data[: whole[:cut].count(b"\n")]
        files.drop_torn_line(path)
        files.append_line(path, {"new": "row"}, durable=False)
        assert files.read_lines(path) == [*kept, {"new": "row"}]


@pytest.mark.parametrize("line", [b"[1]\n", b"{\n", b"\xff\n"])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" + line)
    with pytest.raises(EvalError, match=r"rows\.jsonl, line 2"):
        files.read_lines(path)


def test_a_document_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        files.write_json(path, {"new": object()})
    assert files.read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(EvalError, match=r"config\.json"):
        files.read_json(path)


def test_provenance_is_json_and_git_is_optional(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    known = json.loads(json.dumps(describe(2)))
    assert known["versions"]["torch"]
    assert known["machine"]["cpus"] >= 1
