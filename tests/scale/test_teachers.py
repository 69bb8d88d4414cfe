"""Teachers read their own records alone, and small ones are trained together."""

from __future__ import annotations

import pytest

from tests.scale.teachers import report

pytestmark = [pytest.mark.slow, pytest.mark.timing]

_MIB = 420  # a run of 64 MiB some times, a block of teachers, and 60 bytes for each record


def test_reading_grows_with_the_pool_and_training_takes_a_fraction(tmp_path):
    """Half a millisecond of reading a teacher; before, all of the pool for each."""
    figures = list(report(tmp_path, [20_000, 200_000], [100, 1000]))
    ways = {
        way: {(row["records"], row["teachers"]): row for row in figures if row["way"] == way}
        for way in ("measure", "measure_before")
    }
    for size, now in ways["measure"].items():
        before = ways["measure_before"][size]
        assert now["group_s"] + now["read_s"] < before["read_s"] / 4, (now, before)
        assert now["train_s"] < before["train_s"] / 4, (now, before)
        assert now["peak_mib"] < now["before_it_mib"] + _MIB, now
    # Ten times the teachers of one pool: before, ten times the reading.
    few, many = (ways["measure"][200_000, count] for count in (100, 1000))
    assert many["group_s"] + many["read_s"] < 4 * (few["group_s"] + few["read_s"])
