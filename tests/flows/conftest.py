"""A watched folder, and what people are told, for the tests of watches."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tests.flows.watching import register


@pytest.fixture
def watched(workplace, monkeypatch):
    """A registered first file in an inbox."""
    first = Path("inbox/january.parquet")
    first.parent.mkdir()
    shutil.copy("pool.parquet", first)
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    register(first)
    return workplace


@pytest.fixture
def heard():
    """What people are told."""
    lines, logger = [], logging.getLogger("dpal")
    handler, level = logging.Handler(), logger.level
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: "\n".join(lines)
    logger.removeHandler(handler)
    logger.setLevel(level)
