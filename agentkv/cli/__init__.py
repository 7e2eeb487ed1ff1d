"""The `agentkv` command. Every subcommand imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main() -> None:
    """Entry point of the `agentkv` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`; returns the exit code.

    A user's mistake is one line on stderr and code 2; Ctrl-C is one line and code 130.
    """
    from typer import Abort
    from typer.main import get_command

    from agentkv.cli.app import app
    from agentkv.cli.errors import mistake

    try:
        code = get_command(app).main(list(arguments) or ["--help"], prog_name="agentkv", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, Abort):
        print("agentkv: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; without this Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        found = mistake(error)
        if found is None:
            raise
        print(f"agentkv: {found.line}", file=sys.stderr)
        return found.code
    return code if isinstance(code, int) else 0
