"""Teachers whose noisy votes are released whole, and the students of their shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.pate import parse_pate
from dpal.errors import LedgerError
from dpal.runs.ballot_and_label_tables import read_ballots_file, read_released, read_released_counts
from dpal.runs.choose_queries import Floats, answers_until, shares_until
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.student import student_from
from tests.flows.voting import LABELS, TEACHERS, certificate, releases, settings, write_data
from tests.runs.killed_as_written import kill_voting

COUNTS = {"queries": 40, "release": "counts", "mechanism": "tau_l2", "limit": 1}
LEAST_SQUARES = {"method": "least_squares"}


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)


def asked(name: str, student: object = None, **voting: object):
    values = {**COUNTS, **voting}
    return parse_pate(settings(name, voting=values, student=student or LEAST_SQUARES))


def run(name: str, student: object = None, **voting: object) -> Ensemble:
    dpal.run(asked(name, student, **voting))
    return plan_ensemble(asked(name, student, **voting))


def counts_of(path: Path) -> Floats:
    found = read_released_counts(path)
    assert found is not None
    return found


def test_counts_leave_with_the_noise_that_was_certified():
    ensemble = run("told")
    released = ensemble.account.released_file(1)
    counts, (ids, labels) = counts_of(released), read_released(released)
    kept, ballots = read_ballots_file(ensemble.account.ballots_file(1))
    assert ids == kept
    assert counts.shape == (40, LABELS)
    np.testing.assert_array_equal(labels, 2 * counts > TEACHERS)
    noise = (counts - ballots.counts(ensemble.spec.rule)) / ensemble.spec.rule.sigma
    # 160 values: fails with a chance below 1e-10, and almost always for half or twice the noise.
    assert 0.66 < noise.std() < 1.4
    told = certificate("told")
    assert told["rule"]["counts"] is True
    assert told["epsilon"]["pld"] <= 8
    assert ensemble.folder.read_record()["plan"]["release"] == "counts"
    assert releases("told") == ["votes/1"]
    checks = dpal.verify("artifacts/told", ledger="artifacts/ledger.sqlite")
    assert not any_failed(checks), checks


def test_a_student_of_shares_is_the_same_again():
    ensemble = run("told")
    shares = shares_until(ensemble, 1)
    counts = counts_of(ensemble.account.released_file(1))
    np.testing.assert_array_equal(shares, counts / TEACHERS)
    again = student_from(ensemble, *answers_until(ensemble, 1), shares).state_dict()
    student = load_file(ensemble.files.model)
    assert all((student[name] == tensor).all() for name, tensor in again.items())
    answers = student_from(ensemble, *answers_until(ensemble, 1)).state_dict()
    assert not all((student[name] == tensor).all() for name, tensor in answers.items())


def test_rounds_learn_from_the_shares_of_the_rounds_before():
    ensemble = run("rounds", rounds=3, acquisition="entropy")
    rows, _ = answers_until(ensemble, 2)
    shares = shares_until(ensemble, 2)
    assert shares is not None
    assert shares.shape == (len(rows), LABELS)
    # In the order of the rows, whatever the order of the rounds.
    for number in (1, 2):
        table = pq.read_table(ensemble.asked_file(number))
        counts = counts_of(ensemble.account.released_file(number))
        at = np.searchsorted(rows, table["row"].to_numpy())
        np.testing.assert_array_equal(shares[at], counts / TEACHERS)
    chooser = load_file(ensemble.chooser_file(3))
    again = student_from(ensemble, rows, answers_until(ensemble, 2)[1], shares).state_dict()
    assert all((chooser[name] == tensor).all() for name, tensor in again.items())


STUDENTS = {"supervised": {"epochs": 3}, "solved": LEAST_SQUARES}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDENTS)
def test_any_student_of_shares_or_answers_runs(kind):
    student = STUDENTS[kind]
    assert run("counts", student).files.model.is_file()
    answers = parse_pate(settings("answers", voting={"queries": 40}, student=student))
    dpal.run(answers)
    assert read_released_counts(plan_ensemble(answers).account.released_file(1)) is None


@pytest.mark.slow
def test_killed_with_counts_written_it_goes_on_with_the_same_ones(forked):
    values = settings("killed", voting=COUNTS, student=LEAST_SQUARES)
    kill_voting("released.parquet", values, forked)
    written = Path("artifacts/killed/votes-1/released.parquet").read_bytes()
    ensemble = run("killed")
    assert ensemble.account.released_file(1).read_bytes() == written
    assert releases("killed") == ["votes/1"]


def test_an_account_of_answers_is_no_account_of_counts():
    dpal.run(parse_pate(settings("votes", voting={**COUNTS, "release": "answers"})))
    with pytest.raises(LedgerError):
        run("votes")
