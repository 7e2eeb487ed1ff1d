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
    from agentkv.cli.errors import mistake

    try:
        code = _invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
    except KeyboardInterrupt:
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
    return code


def _invoke(arguments: list[str]) -> int:
    """Parse and run. Errors come out as they are, which the library's own main would partly swallow."""
    from typer import Exit
    from typer.main import get_command

    from agentkv.cli.app import app

    command = get_command(app)
    if "_AGENTKV_COMPLETE" in os.environ:  # the shell asks for completions
        command.main(arguments, prog_name="agentkv")
    try:
        with command.make_context("agentkv", arguments) as context:
            command.invoke(context)
    except Exit as ended:
        return ended.exit_code
    return 0
