"""Who asks teachers by settings is answered in settings, and not in options of a command."""

from __future__ import annotations

import pytest

from dpal.config.vote import parse_vote
from dpal.errors import ConfigError, ParameterError
from dpal.runs import execute
from tests.flows.voting import ballots, write_ballots


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
