"""Write the tasks of `vwa75` at data seed 0 as JSON: `python -m agentkv_envs.tasks.export [FOLDER] [--only GLOB]`.

Every plan is carried out in the browser; what is written are the literal actions and the distances they measured.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentkv_envs.env import WebEnv
from agentkv_envs.sites import World
from agentkv_envs.tasks.manifest import VWA75
from agentkv_envs.tasks.recording import record

SUITE = "vwa75"


def exported(env: WebEnv, only: str = "*") -> Iterator[dict[str, Any]]:
    """The JSON of each task whose id matches, in the manifest's order.

    Raises:
        EnvError: an oracle does not solve its task.
    """
    for spec in VWA75.values():
        if fnmatch.fnmatchcase(spec.task_id, only):
            yield record(env, spec, World(), suite=SUITE).data


def as_text(data: dict[str, Any]) -> str:
    """A task as the text of its file."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Entry point; see the module."""
    parser = argparse.ArgumentParser(prog="python -m agentkv_envs.tasks.export", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / SUITE)
    parser.add_argument("--only", default="*", help="write the tasks whose id matches this pattern only")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.only == "*":
        for old in args.folder.glob("*.json"):
            if old.stem not in VWA75:
                old.unlink()
    with WebEnv(screenshots=False) as env:
        for data in exported(env, args.only):
            (args.folder / f"{data['task_id']}.json").write_text(as_text(data), "utf-8")
            print(f"{data['task_id']}: {len(data['agentkv']['oracle'])} actions")


if __name__ == "__main__":
    main()
