"""Memory does not grow with a data set, nor passes over a pool with their number."""

from __future__ import annotations

import pytest

from tests.scale.registry import report

pytestmark = [pytest.mark.slow, pytest.mark.timing]

# Runs, stretches and slabs of fixed size, and some bytes for each record of the pool.
_MIB, _BYTES = 512, 24
_SMALL, _LARGE = 100_000, 2_000_000


def test_memory_grows_by_some_bytes_a_record_and_time_with_the_records(tmp_path):
    small, large = report([_SMALL, _LARGE], [], tmp_path)
    for step in ("add", "locate"):
        allowed = large["before_it_mib"] + _MIB + _BYTES * _LARGE / 2**20
        assert large[f"{step}_mib"] < allowed, large
        per_record = large[f"{step}_s"] / _LARGE
        assert per_record < 3 * small[f"{step}_s"] / _SMALL, (small, large)
    # The same strangers are compared with twenty times the records.
    assert large["compare_s"] < 5 * small["compare_s"], (small, large)


def test_forty_data_sets_are_not_forty_passes(tmp_path):
    one, many = report([], [1, 40], tmp_path)
    assert many["compare_s"] < 15 * one["compare_s"], (one, many)
