"""`dpal vote --private-figures`: what these votes would cost and answer, as an expectation."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.accounting.votes.cost_analysis import Mode, analyse
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DpalError
from dpal.voting.ballots import Choices
from tests.flows.calling import sentence
from tests.flows.voting import ballots, vote, write_ballots

TEACHERS = 30


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_ballots("b.parquet", ballots(1))
    rng = np.random.default_rng(1)
    truth = np.random.default_rng(1).random((20, 1, 4)) < 0.4  # as `ballots` draws it
    write_truth("truth.parquet", [f"q-{at:03d}" for at in range(20)], truth[:, 0].astype(int))
    classes = rng.integers(3, size=40)
    said = np.where(rng.random((40, TEACHERS)) < 0.1, 0, classes[:, None])
    write_ballots("c.parquet", said, column="class", names=("a", "b", "c"))
    write_truth("classes.parquet", [f"q-{at:03d}" for at in range(40)], classes)


def write_truth(path, ids, labels) -> None:
    order = np.random.default_rng(0).permutation(len(ids))
    table = {"id": [ids[at] for at in order], "label": [labels[at].tolist() for at in order]}
    pq.write_table(pa.table(table), path)


def shown(*arguments: str) -> dict:
    done = vote(*arguments, "--private-figures", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_queries_that_epsilon_pays_for_are_an_expectation_by_these_votes():
    found = shown("c.parquet", "--sigma", "4", "--epsilon", "1.5", "--truth", "classes.parquet",
                  "--sweep", "epsilon=1.5,1.9")  # fmt: skip
    assert "EXPECTATION" in found["expected"] and "private" in found
    rule = VotingRule(mechanism=Mechanism.GNMAX, teachers=TEACHERS, labels=3, sigma=4.0)
    votes = np.asarray(pq.read_table("c.parquet")["class"]).reshape(40, TEACHERS)
    counts = Choices(votes, 3).counts(rule)
    for row, epsilon in zip(found["rows"], (1.5, 1.9), strict=True):
        exact = analyse(rule, counts, mode=Mode.EXACT, delta=1 / 20_000)
        expected = row["expected"]
        assert expected["kind"] == "expectation"
        assert expected["paid_for"]["exact"] == exact.within(epsilon) > row["fit"]
        assert expected["answers"] == expected["paid_for"]["exact"]
        assert "average_precision" not in expected
        assert expected["balanced_accuracy"] > 0.9
    few, many = (row["expected"]["paid_for"]["exact"] for row in found["rows"])
    assert few < many


def test_an_earlier_account_leaves_fewer_queries_to_pay_for():
    """The promise counts what that one holds."""
    write_ballots("first.parquet", ballots(2, queries=4, teachers=TEACHERS))
    first = vote("first.parquet", "--name", "first", "--epsilon", "1.2")
    assert first.returncode == 0, first
    given = ("c.parquet", "--sigma", "4", "--sweep", "epsilon=1.3,1.5,1.9")
    alone, later = (
        [row["expected"]["paid_for"]["exact"] for row in shown(*given, *more)["rows"]]
        for more in ((), ("--after", "first"))
    )
    assert later[0] < later[1] < later[2]
    assert all(few < many for few, many in zip(later, alone, strict=True))


def test_thresholds_and_limits_are_swept_together_with_true_labels():
    found = shown("b.parquet", "--truth", "truth.parquet", "--mechanism", "tau_l2", "--sigma", "30",
                  "--epsilon", "6", "--limit", "2", "--threshold-sigma", "20",
                  "--sweep", "limit=1,1.5", "--sweep", "threshold=2,6,12")  # fmt: skip
    assert found["keys"] == ["limit", "threshold"]
    values = [tuple(row["values"].values()) for row in found["rows"]]
    assert values == [(a, b) for a in (1, 1.5) for b in (2, 6, 12)]
    answers = [row["expected"]["answers"] for row in found["rows"]]
    assert answers[0] > answers[1] > answers[2] > 0
    for row in found["rows"]:
        assert 0.5 <= row["expected"]["balanced_accuracy"] <= 1
        assert 0 < row["expected"]["average_precision"] <= 1
    table = vote("b.parquet", "--sigma", "30", "--private-figures", "--truth", "truth.parquet")
    assert "no promise" in table.stdout and "mAP" in table.stdout
    assert DpalError.closing in table.stdout


REFUSED = [
    (("--truth", "truth.parquet"), "--private-figures"),
    (("--truth", "truth.parquet", "--private-figures", "--name", "some"), "--name"),
    (("--truth", "classes.parquet", "--private-figures"), "list of 4"),
    (("--truth", "short.parquet", "--private-figures"), "lacks 15"),
    (("--truth", "twice.parquet", "--private-figures"), "twice"),
    (("--truth", "b.parquet", "--private-figures"), "'label'"),
    (("--sweep", "threshold=1,2"), "belong together"),
    (("--sweep", "threshold=1,2", "--sweep", "threshold=3,4"), "one setting twice"),
    (("--sweep", "sigma=1:20:1", "--sweep", "epsilon=1:10:1"), "200 combinations"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=lambda one: str(one)[-30:])
def test_what_cannot_be_shown_is_refused(options, says):
    ids = [f"q-{at:03d}" for at in range(5)]
    write_truth("short.parquet", ids, np.zeros((5, 4), dtype=int))
    write_truth("twice.parquet", [*ids, *ids], np.zeros((10, 4), dtype=int))
    said = sentence(vote("b.parquet", *options))
    assert says in said
    assert said.endswith(f"; {DpalError.closing}")
