"""Many campaigns at once on one ledger: all finish, the limit holds, nothing locks up."""

from __future__ import annotations

import re

import pytest

from tests.scale.load import check
from tests.whole_postgres import whole_postgres  # noqa: F401

pytestmark = pytest.mark.slow


def require_right(figures) -> None:
    refused = figures["refused_at_first"]
    assert figures["finished_at_first"] + len(refused) == figures["campaigns"]
    assert figures["finished_at_first"] > 0
    assert refused, "the limit was to be too small for all"
    for name, message in refused.items():
        said = re.search(r"(\S+) would take .* to epsilon (\S+) of (\S+) allowed", message)
        assert said and said[1] == name and float(said[2]) > float(said[3]), (name, message)
    assert figures["unfinished"] == {}
    assert figures["lock_errors"] == []
    assert figures["last"]["kinds"]["end"] == figures["campaigns"]


def test_ledger_prefect_and_mlflow_on_one_postgres(tmp_path, whole_postgres):  # noqa: F811
    figures = check(2, 1, whole_postgres, tmp_path)
    require_right(figures)
    assert whole_postgres.entries("prefect", "flow_run") >= 2
    assert whole_postgres.entries("mlflow", "runs") >= 2
    assert whole_postgres.entries("ledger", "entries") == figures["last"]["entries"]


def test_campaigns_that_are_killed_go_on_and_nothing_is_lost(tmp_path):
    figures = check(4, 2, None, tmp_path, kill_every=20.0)
    require_right(figures)
    assert figures["killed"] > 0


def test_twenty_campaigns_on_four_workers_and_a_ledger_file(tmp_path):
    require_right(check(20, 4, None, tmp_path))
