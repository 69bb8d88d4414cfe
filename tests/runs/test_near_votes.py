"""Private records vote near public ones in place of teachers: plan, ledger, certificate, report."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dpal
from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import NoisyVotes, to_record
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.near_records import NearRecords
from dpal.audit.votes import near_findings
from dpal.canonical import plain
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.verify import verify_certificate
from dpal.config.campaign import parse_config
from dpal.config.pate import parse_pate
from dpal.data.labeling_state import read_labels
from dpal.errors import ConfigError, LedgerError, ParameterError, PlanRejected
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.release_json import release_from
from dpal.planning.voting_plan import VotingPlan, certify_voting, least_sigma
from dpal.privacy import Unit
from dpal.randomness import secure
from dpal.runs.ballot_and_label_tables import read_released
from dpal.runs.execute import end
from dpal.runs.near_votes import campaign_counts, count_near, near_rule
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from tests.flows.voting import campaign_settings, certificate, entries, releases, settings
from tests.runs.killed_as_written import killed_as_written
from tests.variants import quick_and_slow

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


def write_labels_too() -> None:
    """Of three places a record is near one has a label of its own, and the first two share one."""
    for name in ("private", "public", "validation"):
        table = pq.read_table(f"{name}.parquet")
        chosen = np.array(table["label"])
        labels = np.stack([chosen == 0, chosen == 1, chosen < 2], axis=1).astype(np.int8)
        column = pa.array(labels.tolist(), pa.list_(pa.int8()))
        changed = table.set_column(2, "label", column)
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), f"{name}.parquet")


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_classes("private.parquet", PRIVATE, seed=1, prefix="secret")
    write_classes("public.parquet", 300, seed=2, prefix="open")
    write_classes("validation.parquet", 120, seed=3, prefix="check")


def config(name: str, voting: Mapping[str, object] | None = None, **sections: object):
    values = settings(name, voting={**NEAR, **(voting or {})}, **sections)
    return parse_pate({**values, "privacy": sections.get("privacy", PRIVACY)})


def planned(name: str, voting: Mapping[str, object] | None = None, **sections: object) -> Ensemble:
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


@pytest.mark.slow
def test_killed_it_casts_and_draws_nothing_twice(forked):
    released = Path("artifacts/killed/votes-1/released.parquet")
    for moment in MOMENTS:
        died = forked.run(killed_as_written(moment, RUN))
        assert died.returncode == -signal.SIGKILL, (moment, died.stderr)
    drawn = released.read_bytes()
    dpal.run(config("killed"))
    assert released.read_bytes() == drawn
    assert releases("killed") == releases("killed", EntryKind.COMMIT) == ["votes/1"]


@pytest.mark.slow
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


ADJACENCIES = ("zero_out", "replace_one")  # an attack on the latter takes twice the time


@pytest.mark.parametrize(
    ("adjacency", "what"),
    quick_and_slow(
        [("zero_out", "classes")], product(ADJACENCIES, ["classes", "groups", "labels"])
    ),
)
def test_its_own_attack_finds_no_more_than_is_promised_and_much_of_less_noise(
    adjacency, what, monkeypatch
):
    several = replace(planned("near").spec.rule, mechanism=Mechanism.BINARY)
    privacy = {"epsilon": 0.3, "delta": 1e-4, "adjacency": adjacency}
    spec = planned("near", privacy=privacy).spec
    whole = replace(spec, target=replace(spec.target, unit=Unit.GROUP))
    labels = replace(spec, rule=replace(several, sigma=3 * spec.rule.sigma))
    quiet = {"classes": spec, "groups": whole, "labels": labels}[what]
    found = near_findings(VotingPlan(quiet), transcripts=1024, fresh=secure)
    assert all(finding.passed for finding in found)
    if what == "groups":
        return
    near, rule = quiet.near, quiet.rule
    assert near is not None
    charged = near.events(rule, quiet.target.adjacency, (60,))
    # By a fortieth of the noise one attack of 40 found nothing, by an 80th none of 40.
    loud = VotingPlan(replace(quiet, rule=replace(rule, sigma=rule.sigma / 120)))
    monkeypatch.setattr(NearRecords, "events", lambda *args: charged)
    found = near_findings(loud, transcripts=1024, fresh=secure)
    assert not all(finding.passed for finding in found)


@pytest.mark.slow
def test_records_say_yes_or_no_on_several_labels():
    labels, votes = 3, 4
    write_labels_too()
    dpal.run(config("near", {"votes": votes}))
    document = certificate("near")
    assert document["rule"]["mechanism"] == "binary"
    (charged,) = document["released"]
    assert (charged["queries"], charged["squared_sensitivity"]) == (votes, labels / 2)
    assert not any_failed(verify_certificate(document))
    _, released = read_released(Path("artifacts/near/votes-1/released.parquet"))
    assert released.shape == (60, labels)
    assert set(np.unique(released)) == {-1, 0, 1}
    (told,) = dpal.run(config("near", {"votes": votes})).finished_phases()
    assert told["released_right"] > 0.9
    sigma = document["rule"]["sigma"]
    one = planned("one", {"votes": 2 * votes})
    replaced = planned("replaced", privacy={**PRIVACY, "adjacency": "replace_one"})
    assert one.spec.rule.sigma == pytest.approx(2**0.5 * sigma, rel=1e-3)
    # Votes may be opposite, so that replacing one costs four times as much.
    assert replaced.spec.rule.sigma == pytest.approx(2 * sigma, rel=1e-3)


def test_records_of_a_group_vote_together_and_the_certificate_protects_groups():
    table = pq.read_table("private.parquet")
    owners = pa.array([f"patient-{at // 4}" for at in range(len(table))])
    owned = table.append_column("patient", owners)
    pq.write_table(owned.replace_schema_metadata(table.schema.metadata), "private.parquet")
    group = {"count": 6, "epochs": 2, "group_column": "patient"}
    first = planned("near", teachers=group)
    assert first.spec.target.unit is Unit.GROUP
    rule = near_rule(first)
    counts = np.array(count_near(first, 1, rule)["votes"].to_pylist())
    alone = planned("alone")
    single = np.array(count_near(alone, 1, near_rule(alone))["votes"].to_pylist())
    assert counts.sum() <= (PRIVATE / 4) * rule.votes < single.sum()
    dpal.run(config("near", teachers=group))
    document = certificate("near")
    assert document["promise"]["unit"] == "group"
    assert not any_failed(verify_certificate(document))
    # All four records of a group become others, as far away, and of another class.
    table = pq.read_table("private.parquet")
    (event,) = first.spec.events(60)
    assert isinstance(event, NoisyVotes)
    for start in range(0, PRIVATE, 80):
        features = np.array(table["features"].to_pylist(), np.float32)
        features[start : start + 4] = 1e6
        values = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), CLASSES)
        changed = table.set_column(1, "features", values)
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), "private.parquet")
        second = planned(f"second-{start}", teachers=group)
        other = np.array(count_near(second, 1, rule)["votes"].to_pylist())
        moved = float(((counts - other) ** 2).sum())
        assert 0 < moved <= event.queries * event.squared_sensitivity


def test_a_campaign_buys_labels_of_records_and_pays_for_every_vote():
    blocks = {"queries": 60, "blocks": 3, "block_size": 30}
    dpal.run(config("near", blocks, privacy={**PRIVACY, "epsilon": 8.0}))
    document = certificate("near")
    assert document["near"]["blocks"] == 3
    held = next(entry for entry in entries("near") if entry.kind is EntryKind.HOLD)
    charges = [
        charge for record in held.body["releases"] for charge in release_from(record).charges
    ]
    charged = [to_record(charge.event)["queries"] for charge in charges]
    assert charged == [4, 30, 30, 30]
    write_classes("site.parquet", 100, seed=4, prefix="site")
    labeler = {"kind": "teachers", "teachers": "near"}
    buyer = parse_config(campaign_settings("buyer", labeler=labeler))
    dpal.run(buyer)
    assert releases("near", EntryKind.COMMIT) == ["votes/1", "votes/2", "votes/3"]
    document = certificate("near")
    assert [charge["queries"] for charge in document["released"]] == [4, 30, 30]
    assert not any_failed(verify_certificate(document))
    phases = [CampaignFolder(Path("artifacts/buyer")).phase(number) for number in (0, 1)]
    bought = {name: label for files in phases for name, label in read_labels(files.labels).items()}
    truth = dict(zip(*pq.read_table("site.parquet").select(["id", "label"]).to_pydict().values(),
                     strict=True))  # fmt: skip
    assert len(bought) > 30
    assert np.mean([truth[name] == label for name, label in bought.items()]) > 0.9
    # Nothing of the campaign's records is where others look.
    assert not Path("artifacts/near/votes-2").exists()
    kept = Path("artifacts/near/confidential/votes-2/released.parquet")
    assert kept.stat().st_mode & 0o777 == 0o600
    before = entries("near")
    dpal.run(buyer)
    assert entries("near") == before


def test_how_a_campaigns_record_is_answered_depends_on_no_other_one():
    """Seen red where records fall silent after `votes` queries, as in a round."""
    blocks = {"queries": 30, "blocks": 1, "block_size": 40, "votes": 1}
    ensemble = planned("near", blocks, privacy={**PRIVACY, "epsilon": 8.0})
    write_classes("site.parquet", 40, seed=4, prefix="site")
    inputs = torch.tensor(pq.read_table("site.parquet")["features"].to_pylist())
    rule = near_rule(ensemble)
    together = campaign_counts(ensemble, rule, inputs)
    assert (together.sum(axis=1) > 5).all()
    for row in (0, 7, 39):
        alone = campaign_counts(ensemble, rule, inputs[row : row + 1])[0]
        assert (together[row] == alone).all()
    moved = inputs.clone()
    moved[:20] = inputs[20:]
    assert (campaign_counts(ensemble, rule, moved)[20:] == together[20:]).all()


@pytest.mark.parametrize("ended", [False, True], ids=["no block is left", "it was ended"])
def test_a_campaign_that_no_account_answers_is_refused_before_anything_is_held(ended):
    if ended:
        blocks = {"queries": 60, "blocks": 3, "block_size": 30}
        end(dpal.run(config("near", blocks, privacy={**PRIVACY, "epsilon": 8.0})))
    else:
        dpal.run(config("near"))
    write_classes("site.parquet", 100, seed=4, prefix="site")
    buyer = campaign_settings("buyer", labeler={"kind": "teachers", "teachers": "near"})
    with pytest.raises(ParameterError):
        dpal.run(parse_config(buyer))
    assert entries("buyer") == []
    assert releases("near") == ["votes/1"]


@pytest.mark.parametrize(
    "voting",
    [{"threshold": 20, "threshold_sigma": 5}, {"answer_from": 0.8}, {"agreement": 0.9},
     {"noises": 1}, {"neighbours": 2}, {"votes": 0}],
    ids=str,
)  # fmt: skip
def test_what_records_cannot_do_is_refused_at_the_door(voting):
    with pytest.raises(ConfigError):
        config("refused", voting)


def test_what_does_not_fit_the_records_is_refused_before_anything_is_held():
    with pytest.raises(ParameterError):
        planned("refused", {"neighbours": PRIVATE + 1})
    with pytest.raises(ParameterError) as all_asked:  # nobody left to judge distances by
        planned("refused", {"queries": 300})
    assert "all 300 public records" in str(all_asked.value)
    planned("fine", {"queries": 300, "rounds": 2})
    with pytest.raises(PlanRejected):
        planned("refused", {"sigma": 0.5})
    with pytest.raises(ConfigError):
        planned("refused", {"mechanism": "binary"})
    spec = planned("fine").spec
    near = NearRecords(votes=4, neighbours=30.0, bar=3.0, blocks=2)
    with pytest.raises(ParameterError):
        replace(spec, near=near)
    with pytest.raises(ParameterError):
        replace(spec, gate=0, dependents=(1,))
    assert least_sigma(spec, 60) == spec.rule.sigma
    assert certify_voting(spec).summary()["near"] == plain(spec.near)
    assert entries("refused") == []
