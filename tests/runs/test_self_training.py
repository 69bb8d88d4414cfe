"""A campaign whose last phase trains on the labels that its own model gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.sentences import WHO_WAS_DRAWN
from dpal.config.campaign import parse_config
from dpal.config.runtime import RuntimeConfig
from dpal.data.labeling_state import EXCLUDED, UNLABELED, cohort_column, labels_of
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.privacy import Adjacency, Unit
from dpal.runs import labeling
from dpal.runs.manage_data_sets import register_data_set
from tests.conftest import CLASSES, small_values, write_blobs

QUERIES: dict[str, Any] = {"schedule__queries": [200]}
MODES: dict[str, dict[str, Any]] = {
    "open draw": {"privacy": {"selection": "visible", "epsilon": 20}, "acquisition": "random"},
    "secret draws": {
        "privacy": {"selection": "hidden", "secret_draw": True, "epsilon": 20},
        "acquisition": "random",
    },
    "hidden queries": {"privacy": {"selection": "hidden", "secret_draw": True, "epsilon": 20}},
    "visible queries": {"privacy": {"selection": "visible", "epsilon": 20}},
    "noisy scores": {"privacy": {"selection": "paper", "epsilon": 20}},
}


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_everybody_trains_and_the_certificate_holds(workplace, small, mode):
    config = small(self_training={"epochs": 2}, **QUERIES, **MODES[mode])
    folder = dpal.run(config)
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    summary = folder.read_record()["plan"]
    assert [phase["pseudo_labels"] for phase in summary["phases"]] == [False, False, True]
    assert summary["phases"][2]["most_labels"] == 0
    # The unlabeled spend what they were promised, and no more.
    assert 0.9 * 20 < summary["worst_epsilon"] <= 20
    state = cohort_column(folder.phase(2).pool)
    assert not (state == UNLABELED).any()
    bought = (cohort_column(folder.phase(1).pool) >= 0).sum()
    assert (state == 2).sum() == state.size - bought - retired(folder)
    assert [phase["labels"] for phase in folder.finished_phases()][1:] == [300, 300]
    secret = config.privacy.secret_draw is True
    assert (WHO_WAS_DRAWN[1:] in folder.report.read_text(encoding="utf-8")) is secret


def retired(folder: CampaignFolder) -> int:
    return int((cohort_column(folder.phase(1).pool) < UNLABELED).sum())


@pytest.fixture(scope="module")
def guessed(tmp_path_factory) -> Iterator[tuple[CampaignFolder, list[str]]]:
    """A finished campaign, of whose pool every fifth label is wrong; and who was asked when."""
    root = tmp_path_factory.mktemp("guessed")
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    pool = pq.read_table(write_blobs(root / "pool.parquet", 600, seed=1))
    labels = [
        label if row % 5 else (label + 1) % CLASSES
        for row, label in enumerate(pool["label"].to_pylist())
    ]
    pool = pool.set_column(pool.schema.get_field_index("label"), "label", pa.array(labels))
    pq.write_table(pool, root / "pool.parquet")
    asked: list[str] = []
    real = labeling.get_labels

    def noting(job, files, **options):
        asked.append(files.root.name)
        return real(job, files, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(labeling, "get_labels", noting)
        settings = {"self_training": {"epochs": 1}, **QUERIES, **MODES["open draw"]}
        folder = dpal.run(parse_config(small_values(**settings)))
    yield CampaignFolder(root / folder.root), asked


@pytest.mark.slow
def test_pseudo_labels_are_the_released_models_and_bought_labels_stay(guessed):
    folder, _ = guessed
    pool = pq.read_table(folder.root.parent.parent / "pool.parquet")
    before, after = labels_of(folder.phase(1).pool), labels_of(folder.phase(2).pool)
    assert before.items() <= after.items()
    theirs = dict(zip(pool["id"].to_pylist(), pool["label"].to_pylist(), strict=True))
    new = {name: label for name, label in after.items() if name not in before}
    other = [name for name, label in new.items() if theirs[name] != label]
    # The model has learnt from four of five: it guesses neither the pool's labels, nor by chance.
    assert 0.1 * len(new) < len(other) < 0.5 * len(new)


def test_nobody_is_asked_for_them(guessed):
    _, asked = guessed
    assert asked == ["phase-0", "phase-1"]


PLACES = ("write_labels", "write_selection", "write_pseudo_labeled")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_killed_on_its_way_it_goes_on(workplace, small, monkeypatch, place):
    from dpal.runs import pseudo_labels

    config = small(self_training={"epochs": 1}, schedule__queries=[], **MODES["secret draws"])
    real = getattr(pseudo_labels, place)

    def dying(*arguments, **options):
        real(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(pseudo_labels, place, dying)
        dpal.run(config)
    assert labeling.open_query(CampaignFolder(Path("artifacts/small"))) is None
    folder = dpal.run(config)
    ledger = Path("artifacts/ledger.sqlite")
    assert not any_failed(dpal.verify(folder, ledger=ledger))
    entries = LedgerStore(ledger).verified()
    reserved = [entry.release for entry in entries if entry.kind is EntryKind.RESERVE]
    assert reserved.count("phase-1/training") == 1


def registered(**limits: Any) -> dict[str, Any]:
    """Registers the pool as a data set, and gives the settings of a campaign on it."""
    limit = Limit(
        filter=RenyiFilter.fitted(20.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    register_data_set("clinic", replace(limit, **limits), [Path("pool.parquet")], RuntimeConfig())
    return {
        "data__dataset": "clinic",
        "schedule__queries": [],
        "privacy": {"selection": "visible", "delta": 1e-5, "epsilon": 6},
        "self_training": {"epochs": 1},
        "acquisition": "random",
    }


@pytest.mark.slow
def test_persons_with_several_records_train_by_one_of_them(workplace, small):
    table = pq.read_table("pool.parquet")
    people = [f"person-{row % 450}" for row in range(table.num_rows)]
    pq.write_table(table.append_column("person", pa.array(people)), "pool.parquet")
    folder = dpal.run(small(**registered(unit=Unit.GROUP, group_column="person")))
    state = cohort_column(folder.phase(1).pool)
    assert (state >= 0).sum() == 450 and (state == EXCLUDED).sum() == table.num_rows - 450


def test_a_later_campaign_carries_bought_labels_and_no_guesses(workplace, small):
    settings = registered()
    first = dpal.run(small(**settings))
    bought = labels_of(first.phase(0).pool)
    assert len(bought) < len(labels_of(first.phase(1).pool))
    second = dpal.run(small(**settings, name="second", start_from="small"))
    assert labels_of(second.phase(0).pool) == bought
    # Whom labels are carried from is looked at before: nothing was begun.
    first.phase(0).pool.chmod(0o600)
    first.phase(0).pool.write_bytes(b"damaged")
    with pytest.raises(DataError):
        dpal.run(small(**settings, name="third", start_from="small", release="last"))
    assert not CampaignFolder(Path("artifacts/third")).start.exists()


@pytest.mark.slow
def test_it_trains_when_all_labels_are_bought_and_the_curve_is_flat(workplace, small):
    """The rule is about buying labels."""
    flat = {"patience": 1, "least_gain": 1.0}
    random: dict[str, Any] = {"acquisition": "random", "self_training": {"epochs": 1}}
    config = small(stop=flat, schedule__queries=[40], **random)
    folder = dpal.run(config)
    assert len(folder.finished_phases()) == 3
    many = {"schedule__queries": [40, 40, 40], **random}
    folder = dpal.run(small(name="early", stop=flat, **many))
    assert len(folder.finished_phases()) == 2
