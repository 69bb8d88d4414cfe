"""`dpal vote --gate`: labels that are asked only where another one is present."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpal.errors import DpalError
from dpal.runs.ballot_and_label_tables import read_released
from tests.flows.calling import call, sentence
from tests.flows.test_vote_expected import write_truth
from tests.flows.voting import NAMES, certificate, checked, vote, write_ballots

QUERIES, TEACHERS = 150, 60
GATE = ("--gate", "calm", "--dependents", "loud,long", "--sigma", "14", "--epsilon", "2")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = made_labels(QUERIES, seed=1)
    wrong = np.random.default_rng(2).random((QUERIES, TEACHERS, 4)) < 0.05
    write_ballots("b.parquet", labels[:, None] ^ wrong)
    write_truth("truth.parquet", [f"q-{at:03d}" for at in range(QUERIES)], labels.astype(int))
    public = pa.table({"id": [str(at) for at in range(600)],
                       "label": made_labels(600, seed=3).astype(np.int8).tolist()})  # fmt: skip
    pq.write_table(public, "public.parquet")


def made_labels(records: int, *, seed: int) -> np.ndarray:
    """A third is calm; the others are neither loud nor long, but for one in forty."""
    rng = np.random.default_rng(seed)
    labels = rng.random((records, 4)) < 0.5
    labels[:, 0] = rng.random(records) < 1 / 3
    labels[:, [1, 3]] &= labels[:, :1] | (rng.random((records, 1)) < 0.025)
    return labels


def test_more_queries_are_answered_for_the_same_promise():
    plain = json.loads(vote("b.parquet", "--sigma", "14", "--epsilon", "2", "--sweep",
                            "sigma=14", "--json").stdout)  # fmt: skip
    fit = plain["rows"][0]["fit"]
    expected = json.loads(
        vote("b.parquet", *GATE, "--private-figures", "--truth", "truth.parquet", "--json").stdout
    )
    assert expected["blocks"] == [fit]
    assert expected["gate"] == 0
    found = expected["expected"]
    assert found["kind"] == "expectation"
    assert 1.3 * fit < found["queries"] < 1.6 * fit
    assert found["answers"] == pytest.approx(4 * found["queries"])
    assert found["accuracy"] > 0.9
    done = vote("b.parquet", *GATE, "--name", "gated", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["epsilon"] == pytest.approx(expected["epsilon"])
    _, labels = read_released(_released("gated")[0])
    answered = labels[labels[:, 0] >= 0]
    # Each query is 2 or 4 questions: three standard deviations of how many gates are there.
    assert abs(len(answered) - found["queries"]) < 12
    assert fit < len(answered) < QUERIES
    assert (labels[len(answered) :] == -1).all()
    assert not answered[answered[:, 0] == 0][:, [1, 3]].any()
    assert checked("gated").returncode == 0
    assert certificate("gated")["blocks"] == [fit]
    again = vote("b.parquet", *GATE, "--name", "gated", "--json")
    assert again.returncode == 0, again
    assert (read_released(_released("gated")[0])[1] == labels).all()


def _released(name):
    return sorted(Path("artifacts", name).glob("votes-*/released.parquet"))


def test_public_records_say_which_gate_and_what_it_loses():
    done = vote("b.parquet", "--explain", "--public", "public.parquet", "--json")
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    shares = np.array(said["absent_together"], dtype=float)
    assert shares.shape == (4, 4)
    assert (shares.diagonal() == 1).all()
    best = said["gates"][0]
    assert (best["gate"], best["dependents"]) == (0, [1, 3])
    assert 1.4 < best["times"] < 1.6
    assert 0 < best["lost"] < 0.15
    assert "absent together" in vote(
        "b.parquet", "--explain", "--public", "public.parquet"
    ).stdout  # fmt: skip


def test_settings_say_the_same():
    settings = {
        "kind": "vote", "name": "gated", "ballots": {"files": ["b.parquet"]},
        "privacy": {"epsilon": 2.0, "records": 2000},
        "voting": {"gate": "calm", "dependents": ["loud", 3], "queries": 40},
    }  # fmt: skip
    Path("gated.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    planned = call("plan", "gated.yaml", "--json")
    assert planned.returncode == 0, planned
    plan = json.loads(planned.stdout)
    assert plan["blocks"] == [40]
    assert (plan["gate"], plan["dependents"]) == (0, [1, 3])
    assert plan["epsilon"] <= 2


REFUSED = [
    (("--gate", "calm"), "--dependents"),
    (("--queries", "5"), "--queries"),
    (("--gate", "still", "--dependents", "loud"), NAMES[3]),
    (("--gate", "calm", "--dependents", "calm"), "gate"),
    (("--gate", "calm", "--dependents", "loud", "--mechanism", "top_m", "--limit", "2"), "gate"),
    (("--gate", "calm", "--dependents", "loud", "--answer-from", "0.8"), "answer_from"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=lambda one: str(one)[-30:])
def test_what_is_no_gate_is_refused(options, says):
    said = sentence(vote("b.parquet", *options))
    assert says in said
    assert said.endswith(f"; {DpalError.closing}")
