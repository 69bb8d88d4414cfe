"""Campaigns whose queries select from candidates that secret coins drew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpal
from dpal.acquisition.selection import select
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.data.labeling_state import ASIDE, UNLABELED, cohort_column, read_selection
from dpal.errors import ParameterError
from dpal.files.artifacts import CampaignFolder
from dpal.planning.campaign_spec import Acquisition
from dpal.runs import labeling, select_records
from dpal.runs.kinds import folder_of
from tests.conftest import small_values, write_blobs

ROWS, CANDIDATES = 2_000, 500
PRIVACY: dict[str, Any] = {
    "selection": "hidden", "secret_draw": True, "epsilon": 20, "candidates": CANDIDATES,
}  # fmt: skip


@pytest.fixture
def large(workplace: Path) -> Path:
    write_blobs(workplace / "pool.parquet", ROWS, seed=1)
    return workplace


def config_of(small: Any, **changes: Any) -> Any:
    return small(privacy=dict(PRIVACY), schedule__queries=[100, 100], **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[CampaignFolder, list[np.ndarray]]:
    """A finished campaign, and which rows its queries met."""
    root = tmp_path_factory.mktemp("candidates")
    write_blobs(root / "pool.parquet", ROWS, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    met: list[np.ndarray] = []

    def watched(step, scored, *arguments, **options):
        batches = list(scored)
        met.append(np.concatenate([rows for rows, _ in batches]))
        return select(step, iter(batches), *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(select_records, "select", watched)
        values = small_values(privacy=dict(PRIVACY), schedule__queries=[100, 100])
        folder = dpal.run(parse_config(values))
    return CampaignFolder(root / folder.root), met


def test_queries_select_candidates_alone(finished):
    require_candidates_alone(finished[0])


@pytest.mark.slow
def test_who_trains_at_the_end_was_no_candidate_or_not_selected(large, small):
    folder = dpal.run(config_of(small, self_training={"epochs": 2}))
    require_candidates_alone(folder)
    first, later, last = (cohort_column(folder.phase(number).pool) for number in (0, 2, 3))
    assert (last[first == ASIDE] == 3).all() and (last[later == UNLABELED] == 3).all()


def require_candidates_alone(folder: CampaignFolder) -> None:
    assert not any_failed(dpal.verify(folder, ledger=folder.ledger))
    first = cohort_column(folder.phase(0).pool)
    # 500 of 1,900 on average: six deviations of a binomial are 115.
    assert abs((first == UNLABELED).sum() - CANDIDATES) < 115
    assert (first == UNLABELED).sum() + (first == ASIDE).sum() + (first == 0).sum() == ROWS
    later = cohort_column(folder.phase(2).pool)
    selected = np.isin(later, [1, 2])
    assert selected.any() and (first[selected] == UNLABELED).all()
    assert (later[first == ASIDE] == ASIDE).all()
    assert len(read_selection(folder.phase(0).selection)) == (first == 0).sum()
    plan = folder.read_record()["plan"]
    assert plan["candidates"] == CANDIDATES
    assert 0.98 * 20 < plan["worst_epsilon"] <= 20


def test_queries_meet_no_score_of_others(finished):
    folder, met = finished
    first = cohort_column(folder.phase(0).pool)
    assert (np.sort(met[0]) == np.flatnonzero(first == UNLABELED)).all()


@pytest.mark.slow
def test_a_kill_before_labels_are_merged_keeps_the_coins(large, small, monkeypatch):
    class Killed(BaseException):
        """Stands for a kill: nothing catches it."""

    def dying(*arguments: Any, **options: Any) -> None:
        raise Killed

    config = config_of(small)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(labeling, "write_merged", dying)
        dpal.run(config)
    selection = folder_of(config).phase(0).selection
    before = selection.read_bytes()
    folder = dpal.run(config)
    assert folder.phase(0).selection.read_bytes() == before
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))


SPREAD = (Acquisition.CLASS_BALANCED, Acquisition.DIVERSE, Acquisition.COMMITTEE)


@pytest.mark.slow
@pytest.mark.parametrize("acquisition", SPREAD)
def test_every_way_to_spread_or_disagree_runs(large, small, acquisition):
    folder = dpal.run(config_of(small, acquisition=acquisition.value))
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    assert np.isin(cohort_column(folder.phase(2).pool), [1, 2]).sum() > 50


def test_settings_say_how_many_or_the_queries_do(large, small):
    def candidates(**privacy: Any) -> int | None:
        spec = small(privacy={**PRIVACY, **privacy}, schedule__queries=[100, 100]).to_spec(
            pool_size=ROWS, input_shape=(6,), classes=3
        )
        return spec.candidates

    assert candidates() == CANDIDATES
    assert candidates(candidates=None) == 800
    assert candidates(candidates=ROWS) is None
    assert candidates(candidates=None, secret_draw=False) is None
    for impossible in ({"candidates": 150}, {"secret_draw": False}, {"accountant": "rdp"}):
        with pytest.raises(ParameterError):
            candidates(**impossible)


def test_a_campaign_that_began_without_any_goes_on_so(small):
    config = small(privacy={**PRIVACY, "candidates": None}, schedule__queries=[100, 100])
    about: dict[str, Any] = {"pool_size": ROWS, "input_shape": (6,), "classes": 3}
    assert config.to_spec(**about, offers_all=True).candidates is None
