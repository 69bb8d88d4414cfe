"""What one record does to a selection: no more than is charged, and nothing to others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import NEVER_SELECTED, SELECTION, Charge, Release
from dpal.acquisition import selection
from dpal.audit.findings import FALSE_ALARM, AuditFinding, Layer, statistical_finding
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Phase, Plan
from dpal.planning.campaign_spec import CampaignSpec, LabelCap
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    VisibleAnswers,
    starts_at_validation,
)
from dpal.privacy import Adjacency
from dpal.randomness import BitSource, Words

_POOL = 20_000  # simulated records, at most
_RUNS = 120
_PAIRS = 60
_BATCH = 4096
_FAR = 7.0  # deviations of noise that no run sees
_TIES = 16  # keys of records with one score
_PUBLIC = 1000  # simulated records of a validation set


def selection_findings(plan: Plan, *, fresh: Callable[[], BitSource]) -> list[AuditFinding]:
    """Plays games with selections on simulated scores, each way of selecting once.

    Args:
      plan: its last selection of each kind is played.
      fresh: gives a new stream, as every release takes one.
    """
    findings: list[AuditFinding] = []
    if isinstance(plan.phases[0].selection, RandomDraw):  # coins are looked at one by one
        findings.append(_by_chance(plan.phases[0], plan.spec, fresh()))
    by_kind = {type(phase.selection): phase for phase in plan.phases}
    for kind, phase in by_kind.items():
        if kind is HiddenGate:
            findings += _gate(phase, plan.spec, fresh())
        elif kind in (NoisyRanking, VisibleAnswers):
            findings.append(_ratio(phase, plan.spec, fresh()))
    return findings


def selection_epsilon(phase: Phase, spec: CampaignSpec) -> float:
    """The epsilon of one selection alone, between any two contents of a record.

    Games of selection give a record the highest or the lowest score. That is a change of
    content, so the claim is the one for replace_one, whatever the plan's adjacency.
    """
    cohorts = (str(phase.index), NEVER_SELECTED)
    release = Release(
        name=phase.selection_release,
        kind=SELECTION,
        phase=phase.index,
        charges=tuple(Charge(cohorts=cohorts, event=event) for event in phase.selection.events),
    )
    return campaign_epsilon([release], replace(spec.target, adjacency=Adjacency.REPLACE_ONE))


def draw_selection(
    phase: Phase, scores: NDArray[np.float64], *, rng: BitSource
) -> NDArray[np.int64]:
    """Rows that the campaign's own code selects from simulated scores in [0, 1]."""
    step, history = phase.selection, None
    if starts_at_validation(step):
        counted = _counted_before(step)
        # Between the simulated scores: no cut lies among equal scores, where one record more
        # may move the threshold as it may in earnest.
        public = np.full(_PUBLIC, 0.5)
        history = selection.QueryHistory(
            left=scores.size, noisy_count=counted, selected=counted, public_scores=public
        )
    return _selected(phase, scores, history, rng).rows


def _counted_before(step: HiddenGate) -> int:
    """What earlier queries counted, had they met their aims."""
    return step.aim_in_all - step.aim if step.label_cap is LabelCap.SUM else 0


def _selected(
    phase: Phase,
    scores: NDArray[np.float64],
    history: selection.QueryHistory | None,
    rng: BitSource,
) -> selection.Selection:
    rows, step = np.arange(scores.size, dtype=np.int64), phase.selection
    scored = [(rows[i : i + _BATCH], scores[i : i + _BATCH]) for i in range(0, rows.size, _BATCH)]
    count = phase.cohort_size
    return selection.select(step, scored, count, width=1.0, rng=rng, history=history)


def pool_for(phase: Phase, spec: CampaignSpec) -> int:
    """Simulated records: as many as the pool has, within reason and room for the query."""
    return max(4 * phase.cohort_size, min(_POOL, spec.pool_size))


def _by_chance(phase: Phase, spec: CampaignSpec, rng: BitSource) -> AuditFinding:
    """The initial cohort: half of the pool's rows get half of the places."""
    records, count = spec.pool_size, min(phase.cohort_size, spec.pool_size)
    runs = max(1, min(_RUNS, 2_000_000 // records))
    half = records // 2
    rows = np.arange(records, dtype=np.int64)
    hits = sum(
        int((selection.select_at_random([rows], count, rng=rng).rows < half).sum())
        for _ in range(runs)
    )
    share = half / records
    variance = runs * count * share * (1 - share) * (records - count) / max(1, records - 1)
    error = (hits - runs * count * share) / math.sqrt(variance) if variance else 0.0
    return statistical_finding(
        Layer.SELECTION,
        "initial cohort, first half",
        float(2 * scipy.stats.norm.sf(abs(error))),
        expected=f"{share:.3f}",
        measured=f"{hits / runs / count:.4f}",
        likely="the initial cohort depends on more than chance",
    )


def _ratio(phase: Phase, spec: CampaignSpec, rng: BitSource) -> AuditFinding:
    """Compares how often records with the highest and with the lowest score are selected.

    Scores of half of the places are highest. Runs are independent, so their mean excess
    over the bound has a t-distribution.
    """
    claim, records = selection_epsilon(phase, spec), pool_for(phase, spec)
    highest = np.arange(records) < max(1, min(records // 2, phase.cohort_size))
    shares = []
    for _ in range(_RUNS):
        chosen = np.zeros(records, dtype=np.bool_)
        chosen[draw_selection(phase, highest.astype(np.float64), rng=rng)] = True
        shares.append((chosen[highest].mean(), chosen[~highest].mean()))
    top, bottom = np.array(shares).T
    growth, delta = math.exp(claim), spec.target.delta
    p_value = min(
        1.0,
        2 * min(_excess(top, bottom, growth, delta), _excess(1 - bottom, 1 - top, growth, delta)),
    )
    measured, error = _log_ratio(top, bottom)
    return AuditFinding(
        layer=Layer.SELECTION,
        what=f"{phase.name}: log odds, top over bottom",
        expected=f"at most {claim:.3f}",
        measured=f"{measured:.3f} +- {4.9 * error:.2g}",
        passed=p_value > FALSE_ALARM,
        likely="scores decide without the noise that is charged, or competition is not paid for",
        claimed=claim,
        value=measured,
        within=4.9 * error,
        is_epsilon=True,
        false_alarm=FALSE_ALARM,
    )


def _log_ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> tuple[float, float]:
    """Log of the ratio of two means, and its standard error."""
    if not top.mean() or not bottom.mean():
        return math.inf, math.inf
    relative = [float(values.std(ddof=1) / values.mean()) for values in (top, bottom)]
    return math.log(top.mean() / bottom.mean()), math.hypot(*relative) / math.sqrt(top.size)


def _excess(
    more: NDArray[np.float64], less: NDArray[np.float64], growth: float, delta: float
) -> float:
    """P-value of P(more) <= growth P(less) + delta."""
    over = more - growth * less - delta
    spread = float(over.std(ddof=1))
    if spread == 0:
        return 0.0 if over[0] > 0 else 1.0
    return float(scipy.stats.t.sf(over.mean() / spread * math.sqrt(over.size), over.size - 1))


def _gate(phase: Phase, spec: CampaignSpec, rng: BitSource) -> list[AuditFinding]:
    """Draws twice from the same words, with one record's score changed."""
    step = phase.selection
    if not isinstance(step, HiddenGate):
        raise ParameterError(f"{phase.name} selects without a gate")
    # Far more records at the bottom than the noise could hide, and fewer at the top than the
    # aim by more than it could add: the threshold ends between them in both worlds.
    noise = step.count_noise
    top = max(2, math.floor(step.aim - _FAR * noise))
    records = max(pool_for(phase, spec), top + math.ceil(_TIES * 3 * _FAR * noise))
    others = (np.arange(records) < top).astype(np.float64)
    moved, most = 0, 0
    for _ in range(_PAIRS):
        words, chosen = rng.words(2 * records + 2 * _PUBLIC + 4096), []
        for mine in (1.0, 0.0):
            scores = np.append(others[1:], mine)
            chosen.append(
                set(draw_selection(phase, scores, rng=ReplayedRandomness(words)).tolist())
            )
        moved += bool((chosen[0] ^ chosen[1]) - {records - 1})
        most = max(most, *map(len, chosen))
    margin = min(step.aim - top - 1, (records - top) / (2 * _TIES) - step.aim + top) / noise
    chance = min(1.0, 2 * step.comparisons * float(scipy.stats.norm.sf(margin)))
    p_value = float(scipy.stats.binom.sf(moved - 1, _PAIRS, chance)) if moved else 1.0
    allowed = step.cap if starts_at_validation(step) else phase.cohort_size
    return [
        statistical_finding(
            Layer.SELECTION,
            f"{phase.name}: others moved by one",
            p_value,
            expected="never",
            measured=f"{moved} times of {_PAIRS}",
            likely="records compete (a fixed count), so that one record's entry is another's",
        ),
        *([_by_released_counts(phase, step, spec, rng)] if starts_at_validation(step) else []),
        AuditFinding(
            layer=Layer.SELECTION,
            what=f"{phase.name}: selected, at most",
            expected=f"at most {allowed:,}",
            measured=f"{most:,}",
            passed=most <= allowed,
            likely="the label budget is not enforced",
        ),
    ]


def _by_released_counts(
    phase: Phase, step: HiddenGate, spec: CampaignSpec, rng: BitSource
) -> AuditFinding:
    """Draws twice from the same words; earlier queries truly selected fewer, and counted the same.

    Every count of the search is the aim, so that other aims would end it elsewhere; the even
    scores of public records tell where it ended.
    """
    counted, records = _counted_before(step), pool_for(phase, spec)
    fewer = max(1, round(3 * step.count_noise))
    scores = (np.arange(records) < step.aim).astype(np.float64)
    followed = 0
    for _ in range(_PAIRS):
        words, ends = rng.words(2 * records + 2 * _PUBLIC + 4096), []
        for selected in (counted, counted - fewer):
            history = selection.QueryHistory(
                left=records,
                noisy_count=counted,
                selected=selected,
                public_scores=np.linspace(0, 1, _PUBLIC),
            )
            chosen = _selected(phase, scores, history, ReplayedRandomness(words))
            passed = None if chosen.counted is None else chosen.counted.public_passed.tolist()
            ends.append((sorted(chosen.rows.tolist()), passed))
        followed += ends[0] != ends[1]
    return AuditFinding(
        layer=Layer.SELECTION,
        what=f"{phase.name}: follows whom earlier queries truly selected",
        expected="never",
        measured=f"{followed} times of {_PAIRS}",
        passed=not followed,
        likely="aims are computed from actual counts, which nobody paid for, and not from "
        "released ones",
    )


class ReplayedRandomness:
    """A source that gives recorded words again: for two worlds with the same noise."""

    def __init__(self, words: Words) -> None:
        self._words, self._at = words, 0

    def words(self, count: int) -> Words:
        """Returns the next recorded words.

        Raises:
          ParameterError: there are no more.
        """
        if self._at + count > self._words.size:
            raise ParameterError("recorded words are used up; record more")
        taken = self._words[self._at : self._at + count]
        self._at += count
        return taken.copy()
