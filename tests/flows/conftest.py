"""A watched folder, and what people are told, for the tests of watches."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.watching import register


@pytest.fixture
def watched(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registered first file in an inbox."""
    first = Path("inbox/january.parquet")
    first.parent.mkdir()
    shutil.copy("pool.parquet", first)
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    register(first)
    return workplace


@pytest.fixture
def heard() -> Iterator[Callable[[], str]]:
    """What people are told."""
    lines: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("dpal")
    handler, level = Listening(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: "\n".join(lines)
    logger.removeHandler(handler)
    logger.setLevel(level)
