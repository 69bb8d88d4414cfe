"""A query of a pool takes no more than plain pandas does, with all that is private in it."""

from __future__ import annotations

import pytest

from tests.scale.ledger_entries import in_own_process
from tests.scale.pool import report, write_pool
from tests.scale.query_peers import measure_peer
from tests.scale.test_pool import STEPS

pytestmark = [pytest.mark.slow, pytest.mark.timing]

_RECORDS = 1_000_000
_MEMORY = 0.7  # of what the whole process of pandas needs; 0.54 was measured


def test_a_query_takes_no_more_than_plain_pandas(tmp_path):
    in_own_process(write_pool, tmp_path / "pool.parquet", _RECORDS)
    plain = in_own_process(measure_peer, tmp_path, "pandas", _RECORDS)
    (ours,) = report([_RECORDS], [], tmp_path)
    assert sum(ours[step] for step in STEPS) < plain["cpu_s"], (ours, plain)
    assert ours["mib"] < _MEMORY * plain["mib"], (ours, plain)
