"""Campaigns whose hidden queries share one cap: what a query is told of those before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.acquisition import noisy_threshold_search, selection
from dpal.certificate.check_outcome import any_failed
from dpal.data.labeling_state import read_selection, read_selection_notes
from dpal.errors import DataError, LedgerError
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.planning.campaign_spec import LabelCap, ThresholdStart
from dpal.planning.selection_steps import HiddenGate
from dpal.runs import select_records
from dpal.runs.prepare_campaign import prepare
from tests.conftest import small_values, write_blobs

pytestmark = pytest.mark.slow

SETTINGS = {
    "name": "unseen",
    "privacy": {"selection": "hidden", "threshold_noise": 2.0, "epsilon": 16},
    "schedule": {"initial": 200, "queries": [200, 150], "batch_size": 100, "epochs_per_phase": 1},
}

CANDIDATES = 1400  # four for each label of the queries


@pytest.fixture
def config(workplace):
    write_blobs(workplace / "pool.parquet", 3000, seed=1)
    return dpal.settings(small_values(**SETTINGS))


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Iterator[tuple[CampaignFolder, list[selection.QueryHistory]]]:
    """A finished campaign, and what its gates were told."""
    root = tmp_path_factory.mktemp("unseen")
    write_blobs(root / "pool.parquet", 3000, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        heard = told(patch)
        folder = dpal.run(dpal.settings(small_values(**SETTINGS)))
    yield CampaignFolder(root / folder.root), heard


def told(monkeypatch) -> list[selection.QueryHistory]:
    """What gates are told while a campaign runs."""
    heard: list[selection.QueryHistory] = []
    real = selection._through_confirmed_gate

    def listening(step, scored, count, width, rng, history):
        heard.append(history)
        return real(step, scored, count, width, rng, history)

    monkeypatch.setattr(selection, "_through_confirmed_gate", listening)
    return heard


def test_a_query_aims_by_what_was_released_and_keeps_the_cap_of_all(ended):
    folder, heard = ended
    first, second = heard
    notes = [read_selection_notes(folder.phase(index).selection) for index in (1, 2)]
    chosen = [len(read_selection(folder.phase(index).selection)) for index in (1, 2)]
    assert (first.noisy_count, first.selected, first.left) == (0, 0, CANDIDATES)
    assert second.noisy_count == notes[0]["noisy_count"]
    assert second.selected == chosen[0]
    assert second.left == CANDIDATES - notes[0]["noisy_count"]  # never by the true number
    assert sum(chosen) <= 350
    # What passed the first gate of the public records is gone from them, as from the pool.
    assert first.public_scores.size == 300
    assert second.public_scores.size == 300 - len(notes[0]["public_passed"])
    gone = [set(note["public_passed"]) for note in notes]
    assert not gone[0] & gone[1]


def test_pool_and_validation_set_in_one_file(config, monkeypatch):
    """A gate reads the validation set's rows alone: the file has more."""
    parts = [("pool", "train"), ("validation", "test"), ("validation", "neither")]
    tables = [
        table.append_column("split", [[split] * table.num_rows])
        for name, split in parts
        for table in [pq.read_table(f"{name}.parquet")]
    ]
    pq.write_table(pa.concat_tables(tables), "both.parquet")
    heard = told(monkeypatch)
    both = dict.fromkeys(("pool", "validation"), Path("both.parquet"))
    data = config.data.model_copy(update=both)
    folder = dpal.run(config.model_copy(update={"data": data}))
    first, second = heard
    passed = read_selection_notes(folder.phase(1).selection)["public_passed"]
    assert first.public_scores.size == 300
    assert second.public_scores.size == 300 - len(passed)


@pytest.mark.parametrize("drawn", [None, 40, 260])
def test_no_query_is_told_how_many_secret_coins_drew_or_left_as_candidates(
    config, monkeypatch, drawn
):
    """200 are planned, and 1,400 candidates. Who and how many is what makes training cheaper.

    A threshold that followed it would be released, and paid for by nobody.
    """
    heard, real = told(monkeypatch), selection.select_by_coins

    def drawing(eligible, step, *, rng):
        chosen = real(eligible, step, rng=rng)
        if drawn is None:
            return chosen
        rows = np.arange(drawn)
        assert chosen.candidates is not None
        left = np.setdiff1d(chosen.candidates, rows)[: 5 * drawn]
        return selection.Selection(rows, np.empty(0, dtype=np.int64), candidates=left)

    monkeypatch.setattr(select_records, "select_by_coins", drawing)
    privacy = config.privacy.model_copy(update={"secret_draw": True})
    folder = dpal.run(config.model_copy(update={"privacy": privacy}))
    first, second = heard
    counted = read_selection_notes(folder.phase(1).selection)["noisy_count"]
    chosen = [len(read_selection(folder.phase(index).selection)) for index in range(3)]
    assert drawn is None or chosen[0] == drawn
    assert (first.left, first.noisy_count, first.selected) == (CANDIDATES, 0, 0)
    assert (second.left, second.noisy_count) == (CANDIDATES - counted, counted)
    assert second.selected == chosen[1]  # without the initial cohort: the cap is the queries'
    assert sum(chosen[1:]) <= 350
    most = folder.read_record()["plan"]["phases"][-1]["most_labels_in_all"]
    assert sum(chosen) <= most == folder.finished_phases()[-1]["most_labels"]
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))


def test_notes_lie_in_confidential_files_alone(ended):
    folder, _ = ended
    secret = str(folder.phase(1).confidential)
    assert str(folder.phase(1).selection).startswith(secret)
    record = json.loads((folder.root / RECORD).read_text(encoding="utf-8"))
    planned = record["plan"]["phases"][1]["threshold_search"]
    assert planned["cap"] == 350
    assert "noisy_count" not in json.dumps(record)


def test_an_earlier_selection_that_was_altered_stops_the_campaign(config, monkeypatch):
    """The second query's aim comes from it; both the ledger and the file say so."""
    heard = told(monkeypatch)
    real = noisy_threshold_search.confirm_threshold

    def crash_at_the_second(*given, **named):
        if len(heard) == 2:
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(selection, "confirm_threshold", crash_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        dpal.run(config)
    files = prepare(config).folder.phase(1)
    files.selection.write_bytes(files.selection.read_bytes() + b" ")
    with pytest.raises((LedgerError, DataError)):
        dpal.run(config)


def test_a_selection_without_notes_is_no_earlier_query(ended):
    folder, _ = ended
    with pytest.raises(DataError):
        read_selection_notes(folder.phase(0).selection)


def test_a_campaign_of_an_earlier_version_keeps_its_plan(config):
    """It recorded no cap; its thresholds are found by the plain search, and its digest stays."""
    started = prepare(config)
    assert started.plan.spec.threshold_start is ThresholdStart.VALIDATION
    assert started.plan.spec.label_cap is LabelCap.SUM
    assert started.plan.spec.secret_draw
    written = config.model_dump(mode="json")
    del written["privacy"]["label_cap"], written["privacy"]["secret_draw"]
    started.folder.root.mkdir(parents=True)
    started.folder.write_record({"config": written})
    plan = prepare(config).plan
    gate = plan.phases[1].selection
    assert isinstance(gate, HiddenGate)
    assert (plan.spec.threshold_start, plan.spec.label_cap) == (
        ThresholdStart.PLAIN,
        LabelCap.QUERY,
    )
    assert not plan.spec.secret_draw
    assert gate.start is ThresholdStart.PLAIN
    assert gate.confirming_share == 0
    assert np.isclose(gate.count_noise, 2.0 * np.sqrt(gate.comparisons))
