"""Who asks teachers by settings is answered in settings, and not in options of a command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.certificate.check_outcome import any_failed
from dpal.certificate.verify import verify_certificate
from dpal.config.vote import parse_vote
from dpal.errors import ConfigError, DataError, LedgerError, ParameterError
from dpal.ledger.campaign_account import campaign_account
from dpal.runs import execute
from tests.flows.voting import ballots, certificate, entries, write_ballots


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_ballots("ballots.parquet", ballots(1))


def votes(file, name="votes", **settings):
    values = {"kind": "vote", "name": name, "ballots": {"files": [file]}}
    return parse_vote({**values, "privacy": {"records": 4000, "epsilon": 8}, **settings})


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"after": "nobody"}, ["(after)"]),
        ({"privacy": {"delta": 0.5}}, ["privacy.records", "privacy.delta"]),
        ({"voting": {"mechanism": "gnmax"}}, ["voting.mechanism"]),
    ],
)
def test_a_refused_plan_names_settings(file, settings, keys):
    with pytest.raises(ConfigError) as refusal:
        execute.plan_run(votes(file, **settings))
    assert all(key in str(refusal.value) for key in keys)
    assert "--" not in str(refusal.value)


def test_a_second_account_of_the_same_teachers_is_refused_in_settings(file):
    execute.execute_run(votes(file))
    with pytest.raises(ParameterError) as refusal:
        execute.execute_run(votes(file, name="second"))
    assert "name: votes" in str(refusal.value)
    assert "after: votes" in str(refusal.value)
    assert "--" not in str(refusal.value)


def test_a_name_that_others_have_is_refused_in_settings(file):
    execute.execute_run(votes(file))
    strangers = [f"other-{at}" for at in range(9)]
    others = write_ballots("others.parquet", ballots(2), teachers=strangers)
    with pytest.raises(ParameterError) as refusal:
        execute.execute_run(votes(others))
    assert "choose another name" in str(refusal.value)


def write_budgets(path, budgets):
    columns = {"teacher": list(budgets), "epsilon": list(budgets.values())}
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_teachers_that_promise_less_fall_silent_and_certificate_and_ledger_say_what_they_spent(
    file,
):
    own = write_budgets("budgets.parquet", {"t0": 1.0, "t4": 3.0, "t5": 3.0, "t7": 20.0})
    file = write_ballots("ballots.parquet", ballots(1, queries=60))
    privacy = {"records": 4000, "epsilon": 8, "budgets": own}
    done = execute.execute_run(votes(file, privacy=privacy))
    document = certificate("votes")
    assert not any_failed(verify_certificate(document))
    first, second = document["budgets"]
    assert (first["promised"], first["teachers"]) == (1.0, [0])
    assert (second["promised"], second["teachers"]) == (3.0, [4, 5])
    assert first["queries"] < second["queries"] < [60]
    for budget in (first, second):
        assert 0 < budget["epsilon"]["rdp"] <= budget["promised"]
        assert budget["epsilon"]["renyi_oracle"] <= 1.1 * budget["promised"]
    assert document["epsilon"]["rdp"] <= 8
    account = campaign_account(entries("votes"), "votes")
    spent = {cohort.cohort: cohort.epsilon_rdp for cohort in account.cohorts}
    assert spent["budget-1"] == pytest.approx(first["epsilon"]["rdp"], rel=1e-9)
    assert spent["budget-2"] == pytest.approx(second["epsilon"]["rdp"], rel=1e-9)
    report = Path("artifacts/votes/report.md").read_text("utf-8")
    assert f"until query {second['queries'][0]} of" in report
    # The same again changes nothing; teachers that promise something else are another plan.
    before = entries("votes")
    execute.execute_run(votes(file, privacy=privacy))
    assert entries("votes") == before
    write_budgets("budgets.parquet", {"t0": 2.0})
    with pytest.raises(LedgerError):
        execute.execute_run(votes(file, privacy=privacy))
    assert done.name == "votes"


def test_budgets_that_nobody_can_keep_are_refused_before_anything_is_held(file):
    for budgets, error in (
        ({"nobody": 1.0}, DataError),
        ({"t0": 0.0}, DataError),
        ({"t0": float("nan")}, DataError),
        ({f"t{at}": 1.0 for at in range(7)}, ParameterError),
    ):
        own = write_budgets("budgets.parquet", budgets)
        privacy = {"records": 4000, "epsilon": 8, "budgets": own}
        with pytest.raises(error):
            execute.plan_run(votes(file, privacy=privacy))
    own = write_budgets("budgets.parquet", {"t0": 1.0})
    privacy = {"records": 4000, "epsilon": 8, "budgets": own}
    gated = {"gate": "calm", "dependents": ["loud"]}
    with pytest.raises(ParameterError):
        execute.plan_run(votes(file, privacy=privacy, voting=gated))
    assert entries("votes") == []
