"""An append takes as long with many entries behind it as with few; fifty at once are all made."""

from __future__ import annotations

import pytest

from tests.scale.ledger_entries import WRITERS, report

pytestmark = [pytest.mark.slow, pytest.mark.timing]

# As promised at a million entries; a busy machine takes half as long again, as caches are shared.
_MILLISECONDS = 15.0
_MIB = 16  # a thousand entries that are held take more than one


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_appends_take_as_long_whatever_is_behind_them(tmp_path, kind):
    few, many, writers = report(kind, [1000, 100_000], tmp_path)
    for figure in ("hold_ms", "reserve_ms", "checkpoint_ms"):
        assert many[figure] < _MILLISECONDS, many
        assert many[figure] < 2 * few[figure], (few, many)
    assert many["peak_mib"] < few["peak_mib"] + _MIB, (few, many)
    assert writers["writers"] == WRITERS
    assert writers["refused"] == 0, writers
