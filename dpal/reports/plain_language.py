"""A campaign's promise for people who do not read formulas: what it means, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.events import RandomizedResponse
from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.explain_selection import WHO_SEES
from dpal.planning.selection_steps import expected_precision
from dpal.privacy import Unit
from dpal.reports.report import Rows, capital

CHANGED = {
    "zero_out": "had been blanked",
    "replace_one": "had been replaced by any other",
}


def best_guess(epsilon: float, delta: float) -> float:
    """How often anybody can be right about one record, where a coin would be right half the time.

    Args:
      epsilon: of the promise.
      delta: of the promise.

    Returns:
      A bound on the accuracy of every test between two worlds that are equally likely
      beforehand, and differ in the content of one record.

    Source:
      Kairouz, Oh & Viswanath (2015), Theorem 2.1: false alarm + e^epsilon x miss
      >= 1 - delta, and the same with both exchanged; their mean is least where both are equal.

    >>> best_guess(0.0, 0.0)
    0.5
    """
    grown = math.exp(-epsilon)  # e^-epsilon: does not overflow
    return (1.0 + delta * grown) / (1.0 + grown)


def promised(summary: Mapping[str, Any], covered: str) -> Rows:
    """What was promised: a word of the promise, and what it means.

    Args:
      summary: of the certified plan.
      covered: what the promise is about, such as "everything that left this campaign".
    """
    epsilon, delta, unit = summary["target_epsilon"], summary["delta"], summary["unit"]
    guess = best_guess(epsilon, delta)
    return (
        (
            "in one sentence",
            f"Whoever sees {covered} sees nearly the same as if the content of any one {unit} "
            f"{CHANGED[summary['adjacency']]}.",
        ),
        (
            f"epsilon {epsilon:g}",
            f"How near: somebody who knows everything else, and guesses whether one {unit} was as "
            f"it is, is right at most {_share(guess)} of the time, where a coin is right 50 % of "
            "the time. This bounds the worst case; the nearer to 50 %, the stronger the promise.",
        ),
        (
            f"delta {delta:.3g}",
            f"The slack in this: about {_one_in(delta)}, for each {unit}.",
        ),
        (
            f"adjacency {summary['adjacency']}",
            f"What is compared: the pool as it is, and the pool in which one {unit} "
            f"{CHANGED[summary['adjacency']]}.",
        ),
        (
            f"unit {unit}",
            _who_is_protected(unit),
        ),
    )


def declared_public(why: str) -> str:
    """On what the reading of figures rests: somebody's word that their records are public.

    Args:
      why: as the settings say it.
    """
    reason = " ".join(why.split())
    return (
        f"That everybody may see the held-out records is declared, for this reason: {reason!r}. "
        "Nothing checks it; where it is not true, figures on them tell of people whom no promise "
        "protects."
    )


def _who_is_protected(unit: str) -> str:
    if unit == Unit.GROUP:
        return (
            "Who is protected: one group, with all of its records that take part. Where a group "
            "is a person, that person is protected whole; whoever is in several groups is "
            "protected less, by each of them together."
        )
    return (
        f"Who is protected: one {unit}. A person with several of them is protected less, by each "
        "of them together."
    )


def who_sees(summary: Mapping[str, Any]) -> str:
    """Who can see the selection, in one sentence."""
    if summary["acquisition"] == "random":
        return (
            f"{capital(summary['unit'])}s were drawn by chance, without looking at any of them: "
            f"this costs nothing, and training is charged to the {summary['unit']}s that train."
            + (
                " Who and how many were drawn is a secret that the promise rests on."
                if draws_secretly(summary)
                else ""
            )
        )
    mode = SelectionMode(summary["selection"])
    return f"Selection is `{mode}`: {WHO_SEES[mode]}."


def draws_secretly(summary: Mapping[str, Any]) -> bool:
    """Whether the promise counts on it that nobody outside knows who was drawn."""
    events = (event for phase in summary["phases"] for event in phase["selection"])
    return any(event["mechanism"] == "secret_draw" for event in events)


def selection_quality(summary: Mapping[str, Any]) -> str:
    """How good selections were, as far as it may be said.

    What the plan expects is known before the start; what came of it would need scores.
    """
    if summary["acquisition"] == "random":
        return "There is no quality to report: chance chose."
    if summary["selection"] == SelectionMode.HIDDEN:
        return (
            "How good the selections were is not released, nor how many "
            f"{summary['unit']}s they found. By design only the highest-scored pass."
        )
    if summary["selection"] == SelectionMode.VISIBLE:
        told = ", ".join(
            f"{100 * precision:.0f} % in phase {phase} (chance: {100 * chance:.0f} %)"
            for phase, precision, chance in expected_hits(summary)
        )
        return (
            f"Of the selected, the plan expects among the highest-scored: {told or 'nothing'}. "
            "What came of it is not released: it would need the scores."
        )
    return (
        "How many of the selected are truly among the highest-scored depends on the scores, whose "
        "exact values are not released; `dpal rehearse` measures it on public data."
    )


def acquisition_chosen(choice: Mapping[str, Any]) -> str:
    """Which acquisition `acquisition: auto` came to, and why; from the campaign's record."""
    return (
        f"Acquisition {choice['acquisition']} was chosen before the campaign began, on the "
        f"validation set and at no cost: {choice['reason']}."
    )


def expected_hits(summary: Mapping[str, Any]) -> list[tuple[int, float, float]]:
    """Of visible selections: phase, expected share among the highest-scored, share by chance."""
    hits, unlabeled = [], int(summary["pool_size"])
    for phase in summary["phases"]:
        answers = _answers(phase["selection"])
        share = phase["cohort_size"] / unlabeled
        if answers is not None and answers.above > answers.below:
            passing = (share - answers.below) / (answers.above - answers.below)
            hits.append((phase["phase"], expected_precision(answers, share, passing), share))
        unlabeled -= phase["cohort_size"]
    return hits


def _answers(events: Sequence[Mapping[str, Any]]) -> RandomizedResponse | None:
    for event in events:
        if event["mechanism"] == "anchored_answers":
            rates = {key: value for key, value in event.items() if key != "mechanism"}
            return RandomizedResponse(**rates)
    return None


def _share(value: float) -> str:
    """A bound on a share, rounded up: what is said is never less than what may be.

    >>> _share(0.99999), _share(0.731), _share(0.73111), _share(0.99901)
    ('100 %', '73.1 %', '73.2 %', '99.91 %')
    """
    digits = 2 if value > 0.99 else 1
    above = math.ceil(round(100 * value * 10**digits, 6)) / 10**digits
    return "100 %" if above >= 100 else f"{above:.{digits}f} %"


def _one_in(delta: float) -> str:
    return f"one in {1 / delta:,.0f}" if delta > 0 else "none"
