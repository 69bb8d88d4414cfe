"""Defects planted into the code that runs campaigns: each must be found, by name.

Each of them is a bug that some library or paper had. The audit runs as it does for a person,
on noise from the operating system; it misses a planted defect with a chance below 1e-6, as
all of them move a statistic by ten of its standard errors and more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpal import randomness
from dpal.acquisition import noisy_threshold_search, selection
from dpal.acquisition import scores as scoring
from dpal.acquisition.non_private_selection import exact_top_k
from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditReport
from dpal.ledger.release_protocol import CampaignLedger
from dpal.mechanisms import discrete_laplace, randomized_response
from dpal.mechanisms.gaussian import noisy_sum
from dpal.planning.selection_steps import HiddenGate
from dpal.training import dp_sgd
from dpal.training.clipping import Clipper
from dpal.training.per_record import book_keeping
from dpal.training.poisson_batches import PoissonBatches
from tests.audit.auditing import EFFORT, audited, failed, small_plan
from tests.variants import quick_and_slow

HIDDEN = {"privacy__selection": "hidden", "privacy__threshold_noise": 1.0}
# What shows in a single draw needs no more of them.
FEW_DRAWS = replace(EFFORT, draws=1 << 16)
LARGE_QUERY = {"schedule__initial": 100, "schedule__queries": [200]}


@pytest.fixture(scope="module")
def plan():
    return small_plan()


def words(report: AuditReport) -> str:
    return " | ".join(one.likely for one in report.failed)


def values(report: AuditReport) -> dict[str, float | None]:
    return {one.what: one.value for one in report.findings}


def test_sound_code_passes(plan, tmp_path):
    report = audited(plan, tmp_path)
    assert report.passed, words(report)
    assert report.false_alarm < 1e-4
    assert {one.layer.value for one in report.findings} == {
        "step", "mechanism", "selection", "attack", "ledger"
    }  # fmt: skip


def test_half_of_the_noise(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(
        dp_sgd, "noisy_sum", lambda total, scale, *, rng: noisy_sum(total, scale / 2, rng=rng)
    )
    report = audited(plan, tmp_path)
    assert {"mechanism", "attack"} <= failed(report)
    assert values(report)["noise deviation / planned"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.slow
@pytest.mark.statistical
def test_noise_over_the_clipping_norm_instead_of_times(plan, tmp_path, monkeypatch):
    norm = plan.spec.optimizer.max_grad_norm
    assert norm == 2.0
    monkeypatch.setattr(
        dp_sgd, "noisy_sum", lambda total, scale, *, rng: noisy_sum(total, scale / norm**2, rng=rng)
    )
    report = audited(plan, tmp_path)
    assert {"mechanism", "attack"} <= failed(report)
    assert values(report)["noise deviation / planned"] == pytest.approx(0.25, rel=0.01)
    # Here the attack alone proves it: the measured epsilon is above the claimed one.
    proven = next(one for one in report.failed if one.what.startswith("members one"))
    assert proven.value is not None
    assert proven.claimed is not None
    assert proven.value > proven.claimed


def test_clipping_off(plan, tmp_path, monkeypatch):
    def nobody(squared):
        return torch.zeros(squared.shape[1], dtype=torch.bool)

    monkeypatch.setattr(Clipper, "weigh", lambda self, squared: torch.ones_like(squared))
    monkeypatch.setattr(book_keeping, "broken_records", nobody)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert {"step", "attack"} <= failed(report)
    assert "gradients are not clipped" in words(report)
    assert "broken record" in words(report)  # NaN went through, too


@pytest.mark.slow
def test_clipping_to_twice_the_norm(plan, tmp_path, monkeypatch):
    real = Clipper.weigh
    monkeypatch.setattr(Clipper, "weigh", lambda self, squared: real(self, squared / 4))
    report = audited(plan, tmp_path)
    assert "step" in failed(report)
    assert "gradients are not clipped" in words(report)


def shuffled(self: PoissonBatches, *, rng: randomness.BitSource) -> Iterator[np.ndarray]:
    """Every record once an epoch, in batches of a fixed size: what most loaders do."""
    waiting = [np.empty(0, dtype=np.intp) for _ in self.groups]
    for _ in range(self.steps):
        batch = []
        for at, (rows, rate) in enumerate(self.groups):
            size = round(rows.size * rate)
            while waiting[at].size < size:
                order = np.argsort(rng.words(rows.size))
                waiting[at] = np.concatenate([waiting[at], rows[order]])
            batch.append(waiting[at][:size])
            waiting[at] = waiting[at][size:]
        yield np.concatenate(batch)


@pytest.mark.slow
def test_shuffling_instead_of_coins(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(PoissonBatches, "draw", shuffled)
    report = audited(plan, tmp_path)
    assert "mechanism" in failed(report)
    assert "shuffling" in words(report)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_mean_instead_of_a_sum(plan, tmp_path, monkeypatch):
    real = dp_sgd.PrivateGradient.write

    def mean(self, inputs, labels, sizes=None):
        planned, self._divisor = self._divisor, float(max(1, len(inputs)))
        try:
            real(self, inputs, labels, sizes)
        finally:
            self._divisor = planned

    monkeypatch.setattr(dp_sgd.PrivateGradient, "write", mean)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert {"step", "attack"} <= failed(report)
    assert "plan's constant" in words(report)


@pytest.mark.slow
def test_a_mean_inside_of_the_sum(plan, tmp_path, monkeypatch):
    real = dp_sgd.PrivateGradient.clipped_sum
    monkeypatch.setattr(
        dp_sgd.PrivateGradient,
        "clipped_sum",
        lambda self, inputs, labels, *sizes: (
            real(self, inputs, labels, *sizes) / max(1, len(inputs))
        ),
    )
    report = audited(plan, tmp_path)
    assert "taken instead" in words(report)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, pytest.param(1.1, marks=pytest.mark.slow)])
def test_a_wrong_sample_rate(plan, tmp_path, monkeypatch, factor):
    real = vars(PoissonBatches)["of_part"].__func__

    def wrong(cls, *arguments):
        batches = real(cls, *arguments)
        groups = tuple((rows, min(1.0, factor * rate)) for rows, rate in batches.groups)
        return cls(groups=groups, steps=batches.steps)

    monkeypatch.setattr(PoissonBatches, "of_part", classmethod(wrong))
    report = audited(plan, tmp_path)
    assert "mechanism" in failed(report)
    assert "sample rates" in words(report)


def test_scores_in_the_log(plan, tmp_path, monkeypatch):
    real = scoring.score

    def telling(acquisition, probabilities, **options):
        found = real(acquisition, probabilities, **options)
        logging.getLogger("dpal").info("scored, highest %.5f", found.max())
        return found

    monkeypatch.setattr(scoring, "score", telling)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert failed(report) == {"selection"}
    assert "scores, losses" in words(report)


@pytest.mark.slow
def test_a_seed_that_is_used_twice(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(count))
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert "mechanism" in failed(report)
    assert "used twice" in words(report)


@pytest.mark.slow
def test_the_same_noise_in_every_step(plan, tmp_path, monkeypatch):
    memory: dict[int, np.ndarray] = {}

    class Again:
        def __init__(self, rng):
            self._rng = rng

        def words(self, count):
            return memory.setdefault(count, self._rng.words(count)).copy()

    monkeypatch.setattr(
        dp_sgd, "noisy_sum", lambda total, scale, *, rng: noisy_sum(total, scale, rng=Again(rng))
    )
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert "words twice" in words(report)


@pytest.mark.slow
def test_a_stream_that_survives_a_fork(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert failed(report) == {"mechanism"}
    assert "two processes" in words(report)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_retry_that_draws_twice(plan, tmp_path, monkeypatch):
    real = CampaignLedger.release_once

    def eager(self, release, draw, **files):
        def twice():
            draw()
            draw()

        real(self, release, twice, **files)

    monkeypatch.setattr(CampaignLedger, "release_once", eager)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert failed(report) == {"ledger"}
    assert "retry draws" in words(report)


@pytest.mark.slow
def test_a_retry_that_draws_a_committed_release_again(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(CampaignLedger, "_require_unaltered", lambda *_, **__: None)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert failed(report) == {"ledger"}
    assert "drawn twice" in words(report)


@pytest.mark.slow
def test_an_empty_batch_that_is_skipped(plan, tmp_path, monkeypatch):
    real = dp_sgd.PrivateGradient.write

    def skipping(self, inputs, labels, sizes=None):
        if len(inputs):
            real(self, inputs, labels, sizes)

    monkeypatch.setattr(dp_sgd.PrivateGradient, "write", skipping)
    report = audited(plan, tmp_path, FEW_DRAWS)
    assert "step" in failed(report)
    assert "empty batches" in words(report)


@pytest.mark.slow
def test_one_step_too_many(plan, tmp_path, monkeypatch):
    real = PoissonBatches.draw

    def longer(self, *, rng):
        yield from real(self, rng=rng)
        yield np.empty(0, dtype=np.intp)

    monkeypatch.setattr(PoissonBatches, "draw", longer)
    # Nor is there a rate for it: that alone would stop the training with an error.
    monkeypatch.setattr("dpal.training.train_phase.rate_at", lambda recipe, rate, step, steps: rate)
    report = audited(plan, tmp_path)
    assert "stop where" in words(report)


@pytest.mark.slow
def test_records_that_compete_for_a_hidden_selection(tmp_path, monkeypatch):
    plan = small_plan(**HIDDEN, **LARGE_QUERY)
    assert any(isinstance(phase.selection, HiddenGate) for phase in plan.phases)

    def fixed(step, scored, count, *, width, rng, history=None):
        rows, scores = zip(*scored, strict=True)
        best = exact_top_k(np.concatenate(scores), count).rows
        return selection.Selection(np.concatenate(rows)[best], np.empty(0, dtype=np.int64))

    real = selection.select.dispatch(HiddenGate)
    selection.select.register(HiddenGate, fixed)
    try:
        report = audited(plan, tmp_path)
    finally:
        selection.select.register(HiddenGate, real)
    assert "selection" in failed(report)
    assert "records compete" in words(report)


@pytest.mark.parametrize("cap", quick_and_slow(["sum"], ["sum", "query"]))
def test_aims_by_actual_counts_instead_of_released_ones(cap, tmp_path, monkeypatch):
    """Whom earlier queries truly selected would steer this one, and nobody paid for that."""
    plan = small_plan(**HIDDEN, **LARGE_QUERY, privacy__label_cap=cap)
    real = selection.select.dispatch(HiddenGate)

    def by_truth(step, scored, count, *, width, rng, history):
        more = history.selected - history.noisy_count
        moved = replace(step, aim_in_all=step.aim_in_all - more, limit=step.limit - more)
        return real(moved, scored, count, width=width, rng=rng, history=history)

    selection.select.register(HiddenGate, by_truth)
    try:
        report = audited(plan, tmp_path)
    finally:
        selection.select.register(HiddenGate, real)
    assert "selection" in failed(report)
    assert any("truly selected" in finding.what for finding in report.failed)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_confirming_count_with_half_of_its_noise(tmp_path, monkeypatch):
    plan = small_plan(**HIDDEN, **LARGE_QUERY)
    real = noisy_threshold_search.confirm_threshold
    for module in (noisy_threshold_search, selection):
        monkeypatch.setattr(
            module,
            "confirm_threshold",
            lambda *given, count_noise, **named: real(*given, count_noise=count_noise / 2, **named),
        )
    report = audited(plan, tmp_path)
    assert "mechanism" in failed(report)
    value = values(report)["confirming counts' deviation / planned"]
    # 0.529 with the rounding, and a standard error of 0.017: five of them.
    assert value == pytest.approx(0.529, abs=0.085)


def test_noise_on_scores_that_is_half_as_large(tmp_path, monkeypatch):
    plan = small_plan(privacy__selection="paper")
    real = discrete_laplace.laplace_noise
    for module in (discrete_laplace, selection):
        monkeypatch.setattr(
            module, "laplace_noise", lambda n, epsilon, *, rng: real(n, 2 * epsilon, rng=rng)
        )
    report = audited(plan, tmp_path)
    assert "noise on scores is not scaled" in words(report)
    assert "selection" in failed(report)


@pytest.mark.slow
def test_an_answer_that_is_too_honest(plan, tmp_path, monkeypatch):

    real = randomized_response.randomized_responses

    def honest(wanted, *, above, below, rng):
        return real(wanted, above=(1 + above) / 2, below=below, rng=rng)

    for module in (randomized_response, selection):
        monkeypatch.setattr(module, "randomized_responses", honest)
    report = audited(plan, tmp_path)
    assert "answers are drawn at other rates" in words(report)


KINDS: dict[str, dict[str, Any]] = {
    "hidden": {**HIDDEN, **LARGE_QUERY},
    "replace_one": {"privacy__adjacency": "replace_one"},
    "paper": {"privacy__selection": "paper"},
    "random": {"acquisition": "random"},
    "bald": {"acquisition": "bald"},
    "continual": {"strategy": "continual"},
    "adam": {"training__optimizer": "adam"},
}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_campaign_can_be_audited(kind, tmp_path):
    report = audited(small_plan(**KINDS[kind]), tmp_path)
    assert report.passed, words(report)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(20))
def test_sound_code_passes_twenty_times_of_twenty(plan, tmp_path, attempt):
    report = audited(plan, tmp_path, Effort(canaries=1000, most_steps=400))
    assert report.passed, words(report)
