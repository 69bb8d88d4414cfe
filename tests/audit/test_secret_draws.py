"""Secret draws with bugs planted into them: each must be found, and sound ones never."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpal import randomness
from dpal.acquisition import selection
from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.one_draw_per_reservation import drill_findings
from dpal.audit.samplers import sampler_findings
from dpal.mechanisms import poisson_sampling
from dpal.runs.audit_by_attacks import audit_campaign
from dpal.runs.prepare_campaign import prepare
from tests.audit.auditing import audited, small_plan

HIDDEN = {"privacy__selection": "hidden", "privacy__secret_draw": True, "acquisition": "random"}
DRAWS = 1 << 18


@pytest.fixture(scope="module")
def plan():
    return small_plan(**HIDDEN)


def likely(plan) -> list[str]:
    findings = sampler_findings(plan, draws=DRAWS, rng=randomness.secure())
    return [finding.likely for finding in findings if not finding.passed]


def test_sound_draws_pass(plan, tmp_path):
    report = audited(plan, tmp_path)
    assert report.passed
    assert sum(finding.what.startswith("secret draws") for finding in report.findings) == 4


def test_a_fixed_number_charged_as_coins(plan, monkeypatch):
    def fixed(eligible, step, *, rng):
        rows = np.concatenate(list(eligible))
        return selection.select_at_random([rows], round(rows.size * step.draw.chance), rng=rng)

    monkeypatch.setattr(selection, "select_by_coins", fixed)
    assert any("fixed number" in words for words in likely(plan))


def test_coins_of_another_chance(plan, monkeypatch):
    real = poisson_sampling.include
    monkeypatch.setattr(
        selection, "include", lambda count, rate, *, rng: real(count, 1.3 * rate, rng=rng)
    )
    assert any("not say" in words for words in likely(plan))


def test_coins_that_are_used_again(plan, monkeypatch):
    real = poisson_sampling.include
    kept: dict[int, np.ndarray] = {}

    def again(count, rate, *, rng):
        return kept.setdefault(count, real(count, rate, rng=rng))

    monkeypatch.setattr(selection, "include", again)
    found = likely(plan)
    assert any("used twice" in words for words in found)
    assert any("those of another" in words for words in found)


def test_records_that_are_drawn_together(plan, monkeypatch):
    def together(count, rate, *, rng):
        whole = rng.words(1)[0] < np.uint64(int(rate * 2**64))
        return np.arange(count if whole else 0)

    monkeypatch.setattr(selection, "include", together)
    assert likely(plan)


@pytest.fixture(scope="module")
def narrowed():
    """A plan whose queries select from candidates that the same coins draw."""
    return small_plan(
        privacy__selection="hidden", privacy__secret_draw=True, privacy__candidates=400,
        schedule__queries=[100],
    )  # fmt: skip


def test_sound_candidates_pass(narrowed):
    findings = sampler_findings(narrowed, draws=DRAWS, rng=randomness.secure())
    assert all(finding.passed for finding in findings)
    assert sum(finding.what.startswith("secret candidates") for finding in findings) == 4


def test_a_fixed_number_of_candidates_charged_as_coins(narrowed, monkeypatch):
    real = selection.select_by_coins

    def fixed(eligible, step, *, rng):
        rows = np.concatenate(list(eligible))
        drawn = real([rows], step, rng=rng)
        left = np.setdiff1d(rows, drawn.rows)
        count = round(left.size * step.draw.candidates)
        few = selection.select_at_random([left], count, rng=rng)
        return replace(drawn, candidates=few.rows)

    monkeypatch.setattr(selection, "select_by_coins", fixed)
    assert any("fixed number" in words for words in likely(narrowed))


def test_candidates_that_stay_the_same(narrowed, monkeypatch):
    """Who is one follows from a record's place: whoever knows it needs no luck."""
    real = selection.select_by_coins

    def placed(eligible, step, *, rng):
        drawn = real(eligible, step, rng=rng)
        kept = int(step.draw.candidates * 4096)
        rows = np.concatenate(list(eligible))
        return replace(drawn, candidates=np.setdiff1d(rows[:kept], drawn.rows))

    monkeypatch.setattr(selection, "select_by_coins", placed)
    assert any("more often" in words for words in likely(narrowed))


@pytest.mark.slow
@pytest.mark.statistical
def test_a_campaign_with_gates_is_audited_and_listened_to(workplace, small):
    """Its first selection meets no score: the rehearsed one is that of a gate."""
    privacy = {"selection": "hidden", "secret_draw": True, "epsilon": 20}
    campaign = prepare(small(privacy=privacy, schedule__queries=[200]))
    report = audit_campaign(campaign, Effort(canaries=60, most_steps=5, draws=1 << 17))
    assert report.passed
    assert any("rehearsed selection" in finding.what for finding in report.findings)


@pytest.mark.parametrize("self_training", [None, {"epochs": 1}])
def test_its_first_training_is_drawn_in_the_drill_after_its_draw(tmp_path, self_training):
    """Alone, without the secret that makes it cheaper, it costs more than the promise."""
    plan = small_plan(**HIDDEN, self_training=self_training)
    findings = drill_findings(plan, tmp_path, rng=randomness.secure())
    assert [finding.what for finding in findings if not finding.passed] == []
