"""Private records vote near public ones in place of teachers: plan, ledger, certificate, report."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import NoisyVotes
from dpal.accounting.votes.near_records import NearRecords
from dpal.audit.votes import near_findings
from dpal.canonical import plain
from dpal.certificate.checks import any_failed
from dpal.certificate.verify import verify_certificate
from dpal.config.campaign import parse_config
from dpal.config.pate import parse_pate
from dpal.errors import ConfigError, LabelError, LedgerError, ParameterError, PlanRejected
from dpal.ledger.entries import EntryKind
from dpal.planning.voting_plan import VotingPlan, certify_voting, least_sigma
from dpal.privacy import Unit
from dpal.randomness import secure
from dpal.runs.ballot_tables import read_released
from dpal.runs.ensemble import Ensemble, plan_ensemble
from dpal.runs.near_votes import count_near, near_rule
from tests.flows.voting import campaign_settings, certificate, entries, releases, settings
from tests.runs.killed_as_written import killed_as_written

CLASSES, PRIVATE = 3, 400
PRIVACY = {"epsilon": 4.0, "delta": 1e-4}
NEAR = {"queries": 60, "neighbours": 30, "votes": 4}


def write_classes(path: str, rows: int, *, seed: int, prefix: str) -> None:
    """Records around one of three places, named by it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows)
    places = np.eye(CLASSES)[labels] * 3 + rng.normal(size=(rows, CLASSES)) * 0.6
    features = pa.FixedSizeListArray.from_arrays(
        pa.array(places.astype(np.float32).ravel()), CLASSES
    )
    table = pa.table({"id": [f"{prefix}-{at:04d}" for at in range(rows)], "features": features,
                      "label": labels.astype(np.int64)})  # fmt: skip
    pq.write_table(table.replace_schema_metadata({"class_names": '["a", "b", "c"]'}), path)


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_classes("private.parquet", PRIVATE, seed=1, prefix="secret")
    write_classes("public.parquet", 300, seed=2, prefix="open")
    write_classes("validation.parquet", 120, seed=3, prefix="check")


def config(name: str, voting: dict[str, object] | None = None, **sections: object):
    values = settings(name, voting={**NEAR, **(voting or {})}, **sections)
    return parse_pate({**values, "privacy": sections.get("privacy", PRIVACY)})


def planned(name: str, voting: dict[str, object] | None = None, **sections: object) -> Ensemble:
    return plan_ensemble(config(name, voting, **sections))


def test_a_run_reserves_what_a_record_may_vote_and_its_certificate_says_so():
    done = dpal.run(config("near"))
    assert releases("near") == releases("near", EntryKind.COMMIT) == ["votes/1"]
    document = certificate("near")
    assert document["near"] == {"votes": 4, "neighbours": 30.0, "bar": 3.0}
    (charged,) = document["released"]
    assert (charged["queries"], charged["squared_sensitivity"]) == (4, 1)
    assert document["epsilon"]["pld"] <= 4.0
    assert document["epsilon"]["dp_accounting"] == pytest.approx(
        document["epsilon"]["pld"], abs=0.01
    )
    assert not any_failed(verify_certificate(document))
    folder = Path("artifacts/near")
    assert not (folder / "confidential/teachers").exists()
    _, labels = read_released(folder / "votes-1/released.parquet")
    (told,) = done.finished_phases()
    assert (labels >= 0).mean() > 0.8
    assert told["released_right"] > 0.9
    report = (folder / "report.md").read_text("utf-8")
    assert "4 queries" in report
    assert "teachers agree" not in report
    # The same again changes nothing; the votes themselves are only where nobody looks.
    before = entries("near")
    dpal.run(config("near"))
    assert entries("near") == before
    counts = folder / "confidential/votes-1/ballots.parquet"
    assert counts.stat().st_mode & 0o777 == 0o600


def test_least_noise_is_that_of_so_many_votes_however_many_queries_are_asked():
    few, many = planned("few", {"queries": 10}), planned("many", {"queries": 200})
    assert few.spec.rule.sigma == many.spec.rule.sigma
    (release,) = few.plan.releases()
    epsilon = campaign_epsilon([release], few.spec.target)
    assert 3.99 < epsilon == few.certified.epsilon <= 4.0
    replaced = planned("replaced", privacy={**PRIVACY, "adjacency": "replace_one"})
    assert replaced.spec.rule.sigma == pytest.approx(2**0.5 * few.spec.rule.sigma, rel=1e-3)
    rounds = planned("rounds", {"rounds": 4})
    assert rounds.spec.rule.sigma == pytest.approx(2 * few.spec.rule.sigma, rel=1e-3)
    assert len(list(rounds.plan.releases())) == 4


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_one_record_moves_the_counts_by_no_more_than_is_charged(adjacency):
    """Seen red where each query has votes of its own, and where the nearest ones vote."""
    privacy = {**PRIVACY, "adjacency": adjacency}
    first = planned("first", privacy=privacy)
    table = pq.read_table("private.parquet")
    counts = np.array(count_near(first, 1, near_rule(first))["votes"].to_pylist())
    assert counts.sum() > PRIVATE  # far more than would come of one vote each
    (event,) = first.spec.events(60)
    most = 0.0
    for row in range(0, PRIVATE, 40):
        labels = table["label"].to_numpy().copy()
        features = np.array(table["features"].to_pylist(), np.float32)
        features[row] = 1e6 if adjacency == "zero_out" else features[(row + 7) % PRIVATE]
        labels[row] = 0 if adjacency == "zero_out" else labels[(row + 7) % PRIVATE]
        values = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), CLASSES)
        changed = pa.table({"id": table["id"], "features": values, "label": labels})
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), "private.parquet")
        second = planned(f"second-{row}", privacy=privacy)
        other = np.array(count_near(second, 1, near_rule(second))["votes"].to_pylist())
        most = max(most, float(((counts - other) ** 2).sum()))
    assert isinstance(event, NoisyVotes)
    assert 0 < most <= event.queries * event.squared_sensitivity


MOMENTS = ["ballots.parquet", "released.parquet"]
RUN = """
import dpal
from tests.runs.test_near_votes import config
dpal.run(config("killed"))
"""


def test_killed_it_casts_and_draws_nothing_twice(forked):
    released = Path("artifacts/killed/votes-1/released.parquet")
    for moment in MOMENTS:
        died = forked.run(killed_as_written(moment, RUN))
        assert died.returncode == -signal.SIGKILL, (moment, died.stderr)
    drawn = released.read_bytes()
    dpal.run(config("killed"))
    assert released.read_bytes() == drawn
    assert releases("killed") == releases("killed", EntryKind.COMMIT) == ["votes/1"]


def test_votes_that_are_lost_after_they_were_reserved_end_the_run(forked):
    died = forked.run(killed_as_written("released.parquet", RUN))
    assert died.returncode == -signal.SIGKILL, died.stderr
    Path("artifacts/killed/votes-1/released.parquet").unlink()
    Path("artifacts/killed/confidential/votes-1/ballots.parquet").unlink()
    with pytest.raises(LedgerError):
        dpal.run(config("killed"))


def test_a_student_may_choose_what_records_are_asked_next():
    dpal.run(config("chosen", {"rounds": 2, "acquisition": "margin"}))
    assert releases("chosen", EntryKind.COMMIT) == ["votes/1", "votes/2"]
    (told,) = Path("artifacts/chosen").glob("phase-0/asked-2.parquet")
    assert pq.read_table(told)["unsure"].null_count == 0
    assert not any_failed(verify_certificate(certificate("chosen")))


def test_its_own_attack_finds_no_more_than_is_promised_and_much_of_less_noise(monkeypatch):
    for adjacency in ("zero_out", "replace_one"):
        privacy = {"epsilon": 0.3, "delta": 1e-4, "adjacency": adjacency}
        plan = planned("near", privacy=privacy).plan
        assert all(found.passed for found in near_findings(plan, transcripts=1024, fresh=secure))
    near, rule = plan.spec.near, plan.spec.rule
    assert near is not None
    charged = near.event(rule.sigma, plan.spec.target.adjacency)
    loud = VotingPlan(replace(plan.spec, rule=replace(rule, sigma=rule.sigma / 40)))
    monkeypatch.setattr(NearRecords, "event", lambda self, sigma, adjacency: charged)
    assert not all(found.passed for found in near_findings(loud, transcripts=1024, fresh=secure))


def test_records_that_voted_are_no_labeler_of_a_campaign():
    dpal.run(config("near"))
    write_classes("site.parquet", 100, seed=4, prefix="site")
    buyer = campaign_settings("buyer", labeler={"kind": "teachers", "teachers": "near"})
    with pytest.raises(LabelError):
        dpal.run(parse_config(buyer))
    assert entries("buyer") == []


@pytest.mark.parametrize(
    "voting",
    [{"threshold": 20, "threshold_sigma": 5}, {"answer_from": 0.8}, {"agreement": 0.9},
     {"blocks": 2}, {"neighbours": 2}, {"votes": 0}],
    ids=str,
)  # fmt: skip
def test_what_records_cannot_do_is_refused_at_the_door(voting):
    with pytest.raises(ConfigError):
        config("refused", voting)


def test_what_does_not_fit_the_records_is_refused_before_anything_is_held():
    with pytest.raises(ParameterError):
        planned("refused", {"neighbours": PRIVATE + 1})
    with pytest.raises(PlanRejected):
        planned("refused", {"sigma": 0.5})
    with pytest.raises(ConfigError):
        planned("refused", {"mechanism": "binary"})
    spec = planned("fine").spec
    with pytest.raises(ParameterError):
        replace(spec, target=replace(spec.target, unit=Unit.GROUP))
    with pytest.raises(ParameterError):
        replace(spec, gate=0, dependents=(1,))
    assert least_sigma(spec, 60) == spec.rule.sigma
    assert certify_voting(spec).summary()["near"] == plain(spec.near)
    assert entries("refused") == []
