"""Queries in rounds: chosen by a student from what is public, written down, killed and gone on."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file
from scipy.special import entr

import dpal
from dpal.config.pate import parse_pate
from dpal.errors import ConfigError, LabelError, ParameterError
from dpal.ledger.entries import EntryKind
from dpal.models.build_model import build_model
from dpal.runs.choose_queries import answers_until, asked_in, asked_rows
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.query_rounds import CHOOSER, choose_queries, train_chooser
from dpal.runs.student import student_from
from dpal.runs.teachers import load_inputs, scores_of
from tests.flows.voting import certificate, releases, settings, write_data
from tests.runs.killed_as_written import killed_as_written

ROUNDS = {"queries": 40, "rounds": 3, "acquisition": "entropy", "blocks": 2, "block_size": 20}


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)


def planned(name: str, **voting: object) -> Ensemble:
    return plan_ensemble(parse_pate(settings(name, voting={**ROUNDS, **voting})))


def run(name: str, **voting: object) -> Ensemble:
    dpal.run(parse_pate(settings(name, voting={**ROUNDS, **voting})))
    return planned(name, **voting)


def test_each_round_asks_what_a_student_of_the_rounds_before_is_least_sure_of():
    ensemble = run("asked")
    assert [len(asked_in(ensemble, number)) for number in (1, 2, 3)] == [14, 13, 13]
    assert ensemble.spec.blocks == (14, 13, 13, 20, 20)
    assert len(set(asked_rows(ensemble).tolist())) == 40
    # By hand: a student of the answers to the first two rounds, and the entropy of its guesses.
    rows, labels = answers_until(ensemble, 2)
    model = student_from(ensemble, rows, labels)
    left = np.setdiff1d(np.arange(ensemble.public_rows), rows)
    guesses = scores_of(ensemble, model, load_inputs(ensemble.public, left)[1])
    unsure = (entr(guesses) + entr(1 - guesses)).mean(axis=1)
    assert set(asked_in(ensemble, 3)) == set(left[np.argsort(-unsure)[:13]])
    assert releases("asked") == releases("asked", EntryKind.COMMIT) == [
        "votes/1", "votes/2", "votes/3"]  # fmt: skip
    assert len(certificate("asked")["released"]) == 3
    (told,) = ensemble.folder.finished_phases()
    assert [each["asked"] for each in told["rounds"]] == [14, 13, 13]
    assert told["rounds"][0]["unsure"] is None
    assert all(each["unsure"] > each["unsure_of_others"] for each in told["rounds"][1:])
    assert "asked-1.parquet" in Path("artifacts/asked/report.md").read_text("utf-8")
    student = load_file(ensemble.files.model)
    again = build_model(ensemble.model)
    again.load_state_dict(student)
    everything = student_from(ensemble, *answers_until(ensemble, 3))
    assert all((student[name] == tensor).all() for name, tensor in everything.state_dict().items())


def test_the_choice_reads_nothing_that_is_confidential():
    """Without teachers and ballots, and with the private records overwritten, it is the same."""
    ensemble = run("asked")
    paths = [ensemble.asked_file(2), ensemble.asked_file(3)]
    written = [path.read_bytes() for path in paths]
    ensemble.asked_file(3).unlink()
    ensemble.chooser_file(3).unlink()
    shutil.rmtree("artifacts/asked/confidential")
    Path("private.parquet").write_bytes(b"")
    train_chooser(ensemble)
    assert CHOOSER.is_done(ensemble)
    choose_queries(ensemble, 3)
    assert [path.read_bytes() for path in paths] == written


def test_rounds_by_chance_ask_what_one_round_asks_and_cost_the_same():
    chance = run("chance", acquisition="random")
    single = planned("single", rounds=1, acquisition="random")
    assert (asked_rows(chance) == asked_rows(single)).all()
    assert chance.certified.epsilon == pytest.approx(single.certified.epsilon, rel=1e-6)
    assert not list(Path("artifacts/chance").glob("phase-0/chooser-*"))
    (told,) = chance.folder.finished_phases()
    assert all(each["unsure"] is None for each in told["rounds"])


# The process is killed as a file of that name appears: from the third on, that of the second round.
MOMENTS = ["chooser-2.safetensors", "asked-2.parquet", "ballots.parquet", "released.parquet",
           "chooser-3.safetensors", "asked-3.parquet"]  # fmt: skip
RUN = """
import dpal
from dpal.config.pate import parse_pate
from tests.flows.voting import settings
from tests.runs.test_query_rounds import ROUNDS
dpal.run(parse_pate(settings("killed", voting=ROUNDS)))
"""


@pytest.mark.slow
def test_killed_between_and_within_rounds_it_goes_on_and_asks_nothing_twice(forked):
    seen: dict[str, bytes] = {}
    for moment in MOMENTS:
        died = forked.run(killed_as_written(moment, RUN))
        assert died.returncode == -signal.SIGKILL, (moment, died.stderr)
        for path in Path("artifacts/killed").rglob("*.parquet"):
            if path.name in ("released.parquet", "ballots.parquet") or "asked" in path.name:
                if path.name == moment == "ballots.parquet":
                    continue  # not reserved yet: it may be written anew
                # What was chosen, cast and drawn once is never chosen, cast or drawn again.
                same = seen.setdefault(str(path), path.read_bytes()) == path.read_bytes()
                assert same, (moment, path)
    ensemble = run("killed")
    assert all(Path(name).read_bytes() == content for name, content in seen.items())
    assert releases("killed") == releases("killed", EntryKind.COMMIT) == [
        "votes/1", "votes/2", "votes/3"]  # fmt: skip
    told = json.loads(ensemble.files.metrics.read_text("utf-8"))["rounds"]
    assert [each["asked"] for each in told] == [14, 13, 13]


def test_where_nobody_was_answered_yet_the_next_round_is_drawn_by_chance():
    voting = {"sigma": 40.0, "threshold": 2000, "threshold_sigma": 40.0, "rounds": 2}
    with pytest.raises(LabelError):
        run("silent", **voting)
    ensemble = planned("silent", **voting)
    assert len(asked_in(ensemble, 2)) == 20
    assert pq.read_table(ensemble.asked_file(2))["unsure"].null_count == 20
    assert releases("silent", EntryKind.COMMIT) == ["votes/1", "votes/2"]


@pytest.mark.parametrize(
    "voting",
    [{"rounds": 1, "acquisition": "entropy"}, {"rounds": 50}, {"rounds": 0},
     {"rounds": 2, "acquisition": "bald"}],
)  # fmt: skip
def test_rounds_that_are_none_are_refused(voting):
    with pytest.raises(ConfigError):
        planned("refused", **voting)


def test_a_score_that_several_labels_do_not_have_is_refused_before_the_first_round():
    with pytest.raises(ParameterError):
        run("refused", acquisition="margin")
    assert releases("refused", EntryKind.HOLD) == []
