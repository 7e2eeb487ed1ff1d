"""`python -m agentkv` is the `agentkv` command."""

from agentkv.cli import main

main()
