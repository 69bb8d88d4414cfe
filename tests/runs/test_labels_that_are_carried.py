"""A campaign that goes on with the labels of another one whose people skipped some records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.certificate.check_outcome import any_failed
from dpal.config.runtime import RuntimeConfig
from dpal.data.labeling_state import RETIRED, UNLABELED, cohort_column, labels_of, read_selection
from dpal.files.artifacts import PhaseFolder
from dpal.labeling.registered_labelers import LABELERS
from dpal.labels import Label
from dpal.ledger.data_set_accounts import Limit
from dpal.privacy import Adjacency, Unit
from dpal.runs.labelers import NamedLabeler
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.manage_data_sets import register_data_set

pytestmark = pytest.mark.slow

MODES: dict[str, dict[str, Any]] = {
    "at random": {"privacy": {"selection": "visible"}, "acquisition": "random"},
    "by answers": {"privacy": {"selection": "visible"}},
    "by noisy scores": {"privacy": {"selection": "paper"}},
    "hidden": {"privacy": {"selection": "hidden"}, "schedule__queries": [200]},
}


@dataclass(frozen=True)
class Skipping:
    """Says class 0 of every second record by its name, and skips the others."""

    def label(self, ids: Sequence[str]) -> Mapping[str, Label]:
        return {name: 0 for name in ids if not skips(name)}


class SomeSkipped(NamedLabeler):
    """Stands for people who cannot tell."""

    name = "skipping"
    about = place = "people"
    may_skip = True

    def labeler(self, job: LabelingJob, files: PhaseFolder) -> Skipping:
        return Skipping()


def skips(name: str) -> bool:
    return int(name[1:]) % 2 == 1


@pytest.fixture
def clinic(workplace, monkeypatch):
    """Records of a data set, and people who skip half of what they are asked about."""
    limit = Limit(
        filter=RenyiFilter.fitted(30.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    register_data_set("clinic", limit, [Path("pool.parquet")], RuntimeConfig())
    monkeypatch.setitem(LABELERS, "skipping", SomeSkipped())
    return np.array(pq.read_table("pool.parquet", columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("mode", MODES)
def test_who_was_skipped_is_not_asked_about_where_ids_are_seen(clinic, small, mode):
    """Whoever was asked about a second time would be known as somebody whom people skipped."""
    shared = {"labeler__kind": "skipping", "data__dataset": "clinic", **MODES[mode]}
    shared["privacy"] = {"epsilon": 6, "delta": 1e-5, **shared["privacy"]}
    first = dpal.run(small(**{**shared, "schedule__queries": []}))
    asked = read_selection(first.phase(0).selection)
    second = dpal.run(small(**{"schedule__queries": [40], **shared}, name="next",
                            start_from="small"))  # fmt: skip
    state = cohort_column(second.phase(0).pool)
    carried = np.isin(clinic, list(labels_of(first.phase(0).pool)))
    assert 0 < carried.sum() < len(asked) and ((state == 0) == carried).all()
    skipped = np.isin(clinic, asked) & ~carried
    hidden = mode == "hidden"  # nobody sees who is asked, and all thresholds are charged
    assert (state[skipped] == (UNLABELED if hidden else RETIRED)).all()
    assert hidden or not set(asked) & set(read_selection(second.phase(1).selection))
    assert not any_failed(dpal.verify(second, ledger=Path("artifacts/ledger.sqlite")))
