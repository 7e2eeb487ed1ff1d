"""One server for the tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server_fakes import Running, serving, tiny_engine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tiny_engine(), tmp_path_factory.mktemp("sessions")) as running:
        yield running
