"""Teachers who are asked only where they object to a public model, as a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.canonical import plain
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.config.pate import PateConfig, parse_pate
from dpal.errors import ConfigError, DpalError, LabelError, LedgerError, PlanRejected
from dpal.ledger.entries import EntryKind
from dpal.planning.voting_plan import least_sigma
from dpal.runs.ballot_and_label_tables import read_ballots_file, read_public_answers, read_released
from dpal.runs.pate_use_cases import VotingRuns
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.voting.ballots import Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED
from dpal.voting.public_consensus import release_by_consensus
from flows.cli.plan_view import RunPlanViews
from tests.conftest import mislabel, nothing_released, write_blobs
from tests.flows.voting import campaign_settings, certificate, entries, releases, settings
from tests.runs.killed_as_written import kill_voting

TEACHERS = 30
CONSENSUS = {"queries": 80, "objections": 6}
DRAWN = "dpal.runs.vote_account.release_by_consensus"
ASKED = "dpal.runs.release_votes.public_answers"


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("private", 600), ("public", 120), ("validation", 90), ("tuning", 60)):
        write_blobs(tmp_path / f"{name}.parquet", rows, seed=len(name), prefix=name)


def values(name: str, **sections: object):
    return settings(
        name,
        **{
            "teachers": {"count": TEACHERS, "epochs": 15, "tuning": "tuning.parquet"},
            "voting": CONSENSUS,
            **sections,
        },
    )


def asked(name: str, **sections: object) -> PateConfig:
    return parse_pate(values(name, **sections))


def run(name: str, **sections: object) -> Ensemble:
    config = asked(name, **sections)
    dpal.run(config)
    return plan_ensemble(config)


def told(ensemble: Ensemble) -> dict[str, int]:
    """What else a block says of itself."""
    metadata = pq.read_schema(ensemble.account.released_file(1)).metadata
    return {key: int(metadata[key.encode()]) for key in ("reached", "objections")}


def test_ways_that_teachers_cannot_object_to_are_rows_with_a_reason():
    rows = RunPlanViews().compare(asked("ways")).record["rows"]
    planned = {row["voting.mechanism"] for row in rows if row["planned"]}
    assert planned and planned < {row["voting.mechanism"] for row in rows}
    assert all(row["reason"] for row in rows if not row["planned"])


def test_a_public_model_answers_and_teachers_object():
    ensemble = run("agreed")
    ids, labels = read_released(ensemble.account.released_file(1))
    kept, ballots = read_ballots_file(ensemble.account.ballots_file(1))
    public = read_public_answers(ensemble.account.ballots_file(1))
    assert isinstance(ballots, Choices)
    assert public is not None
    assert ids == kept
    facts = told(ensemble)
    # At epsilon 8 six objections are found with noise of about five votes: a model that is as good
    # as the teachers is hardly ever objected to.
    assert facts["objections"] <= 6
    assert (labels[facts["reached"] :] == UNANSWERED).all()
    reached = slice(0, facts["reached"])
    assert (labels[reached] != public[reached]).sum() <= facts["objections"]
    table = pq.read_table("public.parquet")
    truth = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
    right = np.array([truth[name] for name in ids]) == public
    assert right.mean() > 0.8
    assert releases("agreed") == ["votes/1"]
    found = certificate("agreed")
    assert found["consensus"] == plain(ensemble.spec.consensus)
    assert [event["mechanism"] for event in found["released"]][-1] == "sparse_vector"
    assert found["epsilon"][ensemble.certified.plan.accountant.value] <= 8
    assert "consensus" in found["statements"]
    assert not any_failed(dpal.verify("artifacts/agreed", ledger="artifacts/ledger.sqlite"))


@pytest.mark.slow
def test_teachers_object_to_a_bad_model_until_that_is_spent():
    """At epsilon 8 a threshold is so noisy that one run in a hundred or so finds fewer."""
    mislabel(Path("tuning.parquet"))
    ensemble = run("objected", privacy={"epsilon": 30.0, "delta": 1e-4})
    _, labels = read_released(ensemble.account.released_file(1))
    public = read_public_answers(ensemble.account.ballots_file(1))
    facts = told(ensemble)
    assert facts["objections"] == 6
    assert facts["reached"] < 80
    assert (labels[facts["reached"] :] == UNANSWERED).all()
    assert (labels[: facts["reached"]] != UNANSWERED).all()
    assert labels[facts["reached"] - 1] in range(3)  # the last objection is answered
    assert public is not None
    assert not any_failed(dpal.verify("artifacts/objected", ledger="artifacts/ledger.sqlite"))


def test_it_is_reserved_before_it_is_drawn(monkeypatch):
    seen = []

    def drawn(*given, **more):
        seen.append(releases("order"))
        assert releases("order", EntryKind.COMMIT) == []
        return release_by_consensus(*given, **more)

    monkeypatch.setattr(DRAWN, drawn)
    run("order")
    assert seen == [["votes/1"]]


@pytest.mark.slow
def test_killed_as_answers_are_written_it_goes_on_with_the_same_ones(forked):
    kill_voting("released.parquet", values("killed"), forked)
    written = Path("artifacts/killed/votes-1/released.parquet").read_bytes()
    ensemble = run("killed")
    assert ensemble.account.released_file(1).read_bytes() == written
    assert releases("killed") == ["votes/1"]


def test_killed_before_they_are_written_public_answers_stay(monkeypatch):
    """The model of another machine may round otherwise: what is counted is what was kept."""

    def dying(*given, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DRAWN, dying)
        with pytest.raises(KeyboardInterrupt):
            run("again")
    ensemble = plan_ensemble(asked("again"))
    kept = read_public_answers(ensemble.account.ballots_file(1))
    ensemble.public_model_file.unlink()
    monkeypatch.setattr(ASKED, lambda *_: pytest.fail("they are there already"))
    run("again")
    after = read_public_answers(ensemble.account.ballots_file(1))
    assert kept is not None
    np.testing.assert_array_equal(kept, after)


@pytest.mark.slow
def test_the_public_model_is_the_same_again_and_no_teacher():
    first = run("agreed").public_model_file.read_bytes()
    ensemble = run("twice")
    assert ensemble.public_model_file.read_bytes() == first
    assert ensemble.teacher_file(0).read_bytes() != first


@pytest.mark.slow
def test_an_account_of_votes_is_no_account_of_objections():
    dpal.run(asked("votes", voting={"queries": 80}))
    held = entries("votes")
    with pytest.raises(LedgerError):
        run("votes")
    assert entries("votes") == held


@pytest.mark.slow
def test_objections_cost_what_few_votes_do():
    """500 queries for 10 objections, in place of 500 votes."""
    write_blobs(Path("public.parquet"), 600, seed=9, prefix="public")
    spec = plan_ensemble(asked("plan", voting={"queries": 500, "objections": 10})).spec
    votes = plan_ensemble(asked("votes", voting={"queries": 500})).spec
    assert votes.rule.sigma > 4 * spec.rule.sigma
    few = plan_ensemble(asked("few", voting={"queries": 10})).spec
    assert few.rule.sigma < spec.rule.sigma < 2 * few.rule.sigma
    assert least_sigma(spec, 500) == spec.rule.sigma
    more = plan_ensemble(asked("more", voting={"queries": 600, "objections": 10})).spec
    assert (more.rule, more.consensus) == (spec.rule, spec.consensus)


MANY = {
    "voting": {**CONSENSUS, "objections": 1_000},
    "privacy": {"epsilon": 0.01, "delta": 1e-7},
}


def test_campaigns_buy_no_labels_where_one_answer_depends_on_others():
    run("votes")
    write_blobs(Path("site.parquet"), 120, seed=12, prefix="site")
    before = entries("votes")
    with pytest.raises(LabelError) as refusal:
        dpal.run(parse_config(campaign_settings("buys")))
    assert nothing_released(refusal.value)
    assert entries("votes") == before


def test_what_a_server_is_told_of_has_no_second_epsilon():
    told_of = VotingRuns().tracked(run("tracked")).parameters
    assert (told_of["voting.objections"], told_of["voting.object_from"]) == (6, 0.5)
    assert "voting.epsilon" not in told_of


REFUSED = [
    {"voting": {**CONSENSUS, "mechanism": "binary"}},
    {"voting": {**CONSENSUS, "neighbours": 40}},
    {"voting": {**CONSENSUS, "threshold": 20, "threshold_sigma": 5}},
    {"voting": {**CONSENSUS, "answer_from": 0.8}},
    {"voting": {**CONSENSUS, "agreement": 0.9}},
    {"voting": {**CONSENSUS, "release": "counts"}},
    {"voting": {**CONSENSUS, "rounds": 2}},
    {"voting": {**CONSENSUS, "blocks": 1}},
    {"voting": {**CONSENSUS, "objections": 0}},
    {"voting": {**CONSENSUS, "object_from": 1.2}},
    {"teachers": {"count": TEACHERS}},
    {
        "teachers": {
            "count": TEACHERS,
            "tuning": "tuning.parquet",
            "partition": "parts.parquet",
            "budgets": "budgets.parquet",
        }
    },
]


@pytest.mark.parametrize("sections", REFUSED, ids=str)
def test_what_does_not_go_with_it_is_refused_at_the_door(sections):
    with pytest.raises(ConfigError) as refusal:
        asked("refused", **sections)
    assert str(refusal.value).count("\n") <= 1


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"voting": {**CONSENSUS, "sigma": 0.5}}, PlanRejected),
        (
            {
                "voting": {**CONSENSUS, "objections": 1_000},
                "privacy": {"epsilon": 0.01, "delta": 1e-7},
            },
            PlanRejected,
        ),
    ],
    ids=["too little noise", "too many objections"],
)
def test_what_does_not_fit_is_refused_before_anything_is_held(sections, error):
    with pytest.raises(error) as refusal:
        run("refused", **sections)
    assert isinstance(refusal.value, DpalError)
    assert nothing_released(refusal.value)
    assert entries("refused") == []


def test_a_sigma_that_fits_stays():
    spec = plan_ensemble(asked("given", voting={**CONSENSUS, "sigma": 40.0})).spec
    assert spec.rule.sigma == 40
    assert spec.consensus == plan_ensemble(asked("found")).spec.consensus
