"""Versions of one registered model: which line, what changed, and the rule of the champion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpal.config.model_registry import MOST_LOSS, RegistryConfig
from dpal.runs.champion_rule import judge
from dpal.runs.model_line import VersionFacts, changes_in_words, changes_table

PROMISE = {"epsilon": "3", "delta": "1e-05", "adjacency": "zero_out", "unit": "record"}
NOW = VersionFacts(
    run="clinic-0002",
    origin="data set clinic",
    promise=PROMISE,
    certificate="ab" * 32,
    records=900,
    labels=200,
    figure="accuracy",
    value=0.915,
    standard_error=0.0123,
    measured_on="5f2e",
)
BEFORE = replace(NOW, run="clinic-0001", records=600, labels=100, value=0.92)


def ruled(now=NOW, champions=None, current="1", *, most_loss=0.01, alike=True):
    known = {"1": BEFORE} if champions is None else champions
    return judge(now, known, current, most_loss=most_loss, alike=lambda _: alike)


def test_facts_come_back_from_tags():
    assert VersionFacts.from_tags(tags_with(NOW)) == NOW
    bare = VersionFacts(run="old", origin=None, promise=PROMISE, certificate="cd" * 32)
    assert VersionFacts.from_tags(tags_with(bare)) == bare
    assert set(bare.as_tags()) == set()


def tags_with(facts):
    """Tags as the registry has them, those of the certificate too."""
    certified = {"dpal.campaign": facts.run, "dpal.certificate": facts.certificate}
    return {**facts.as_tags(), **facts.promise, **certified}


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, True),  # half a point lower
        ({"most_loss": 0.004}, False),
        ({"now": replace(NOW, value=0.95), "most_loss": 0.0}, True),
        ({"now": replace(NOW, value=0.92), "most_loss": 0.0}, True),
        ({"now": replace(NOW, worthless="This model is no better.")}, False),
        ({"now": replace(NOW, worthless="No better."), "champions": {}, "current": None}, False),
        ({"champions": {}, "current": None}, True),  # the first
        ({"current": None}, False),  # somebody took the name away
        ({"current": "7"}, False),  # named by nobody who left a reason
        ({"champions": {"1": replace(BEFORE, origin="campaign clinic")}}, False),
        ({"champions": {"1": replace(BEFORE, origin=None)}}, False),
        ({"alike": False}, False),
        # Small losses do not add up: the best of all champions counts, not the last one.
        ({"champions": {"1": BEFORE, "2": replace(BEFORE, value=0.911)}, "current": "2"}, True),
        ({"champions": {"1": replace(BEFORE, value=0.93), "2": BEFORE}, "current": "2"}, False),
    ],
)  # fmt: skip
def test_the_rule_moves_the_champion_to_what_is_not_worse(changes, moves):
    verdict = ruled(**changes)
    assert verdict.moves is moves, verdict
    assert verdict.reason


def test_a_reason_has_the_figures_that_it_is_about():
    reason = ruled(most_loss=0.004).reason
    assert [part in reason for part in ("91.50 %", "92.00 %", "version 1", "0.40 points")] == [
        True
    ] * 4


def test_what_changed_is_a_table():
    rows = {row[0]: row[1:] for row in changes_table(("1", BEFORE), ("2", NOW)).rows}
    assert rows["records"] == ("600", "900", "+300")
    assert rows["labels, at most"] == ("100", "200", "+100")
    assert rows["accuracy"] == ("92.00 %", "91.50 %", "-0.50 points")
    assert rows["epsilon"] == ("3", "3", "")
    table = changes_table(("1", BEFORE), ("2", NOW))
    assert changes_in_words(table.rows).endswith("+100, accuracy -0.50 points")
    dearer = replace(NOW, promise={**PROMISE, "epsilon": "5"})
    assert "3 to 5" in str(changes_table(("1", BEFORE), ("2", dearer)).rows)


def test_of_a_version_without_facts_what_is_unknown_is_said():
    bare = VersionFacts.from_tags({"epsilon": "3"})
    rows = {row[0]: row[1:] for row in changes_table(("1", bare), ("2", NOW)).rows}
    assert rows["records"] == ("unknown", "900", "")
    assert rows["accuracy"] == ("unknown", "91.50 %", "")


def test_a_rule_may_not_lose_much():
    assert RegistryConfig().most_loss < MOST_LOSS
    with pytest.raises(ValueError, match="most_loss"):
        RegistryConfig(most_loss=MOST_LOSS + 0.01)
