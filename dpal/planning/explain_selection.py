"""What selection costs, who sees it, and how many labels it buys, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dpal.planning.alternatives import expected_labels, pool_at, precision_of, with_random_selection
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import LabelCap, SelectionMode
from dpal.planning.explain_words import (
    Remark,
    against,
    listed,
    shares,
    solved,
    telling_noise,
    total_steps,
)
from dpal.planning.hidden_gate import IN_VAIN
from dpal.planning.selection_steps import (
    HiddenGate,
    SecretRandomDraw,
    VisibleAnswers,
    starts_at_validation,
)

WHO_SEES = {
    SelectionMode.HIDDEN: "only models leave the trusted process; who was labeled, how many and "
    "in which batches stays inside, and the labeler is trusted",
    SelectionMode.VISIBLE: "anyone may see who was selected, and never a score or a rank",
    SelectionMode.PAPER: "anyone may see the noisy score of every unlabeled record, and so who "
    "was selected",
}


def selection(certified: CertifiedPlan) -> Remark:
    """What selecting costs, and who can see it."""
    spec, topic = certified.plan.spec, "What selection costs"
    if not spec.selects:
        text = "Nothing: records are drawn without looking at any of them."
        numbers: dict[str, Any] = {"selection_epsilon": 0.0}
        return Remark(topic=topic, text=text + _secrecy(certified.plan, numbers), numbers=numbers)
    never = certified.never_selected.spent.epsilon_pld
    last = certified.cohorts[-1].spent
    numbers = {
        "never_selected_epsilon": never,
        "last_cohort_selection_epsilon": last.selection_epsilon,
    }
    text = (
        f"Selection {spec.selection}: {WHO_SEES[spec.selection]}. A record that is never "
        f"selected loses epsilon {never:.4f}, to all selections together. To one of the last "
        f"cohort selections alone cost {last.selection_epsilon:.4f}."
    )
    free = solved(with_random_selection(spec))
    if isinstance(free, Plan):
        noise, steps = telling_noise(free), total_steps(free)
        numbers |= {"noise_if_random": noise, "steps_if_random": steps}
        text += f" Random selection would cost nothing, with {against(free, certified.plan)}."
    text += _secrecy(certified.plan, numbers) + _choice(certified.plan, numbers)
    return Remark(topic=topic, text=text, numbers=numbers)


def _choice(plan: Plan, numbers: dict[str, Any]) -> str:
    """What it saves that queries select from some records only."""
    spec = plan.spec
    if spec.candidates is None:
        return ""
    numbers["candidates"] = spec.candidates
    text = (
        f" Queries select from about {spec.candidates:,} candidates, whom the same coins draw "
        "(privacy.candidates)"
    )
    other = solved(replace(spec, candidates=None))
    if not isinstance(other, Plan):
        return f"{text}; from all records, no plan would keep the promise."
    numbers["noise_if_all_are_candidates"] = telling_noise(other)
    return f"{text}; from all records, the same promise would mean {against(other, plan)}."


def _secrecy(plan: Plan, numbers: dict[str, Any]) -> str:
    """What it saves, or would save, that nobody knows whom chance drew."""
    spec = plan.spec
    if reason := spec.why_no_secret_draw:
        if spec.selection is SelectionMode.HIDDEN:
            return f" That it is a secret whom chance drew counts for nothing: {reason}."
        return ""
    other = solved(replace(spec, secret_draw=not spec.secret_draw))
    if not isinstance(other, Plan):
        return ""
    numbers["noise_if_draw_is_known" if spec.secret_draw else "noise_if_draw_is_secret"] = (
        telling_noise(other)
    )
    if spec.secret_draw:
        return (
            " It is a secret whom chance drew: if that were known, the same promise would mean "
            f"{against(other, plan)}."
        )
    return (
        " Drawn by secret coins (privacy.secret_draw), the same promise would mean "
        f"{against(other, plan)}."
    )


def labels(certified: CertifiedPlan) -> Remark:
    """How many labels are bought, and how good the selected ones can be."""
    plan = certified.plan
    queries = range(1, len(plan.labeling_phases))
    budget = sum(phase.labels for phase in plan.phases)
    most = plan.most_labels(upto=len(plan.phases) - 1)
    expected = expected_labels(plan)
    precision = [precision_of(plan, query) for query in queries]
    chance = [plan.phases[query].cohort_size / pool_at(plan, query) for query in queries]
    numbers: dict[str, Any] = {
        "labels": budget,
        "expected_labels": expected,
        "most_labels": most,
        "expected_precision": precision,
        "precision_by_chance": chance,
    }
    bought = f"{most:,} labels" if plan.spec.groups is None else f"labels for {most:,} groups"
    sentences = [f"At most {bought} are bought.", *_label_sentences(plan, numbers)]
    return Remark(topic="Labels", text=" ".join(sentences), numbers=numbers)


def _search_sentences(
    plan: Plan, gates: list[HiddenGate], numbers: dict[str, Any]
) -> Iterator[str]:
    """How thresholds are found, what is kept in reserve, and what that leaves."""
    expected, gate = numbers["expected_labels"], gates[-1]
    numbers |= {
        "threshold_start": gate.start.value,
        "label_cap": gate.label_cap.value,
        "counts_per_query": gate.comparisons + starts_at_validation(gate),
    }
    known = "Who passes a gate is decided record by record, so how many pass is only nearly known"
    if not starts_at_validation(gate):
        kept = [
            phase.cohort_size - phase.selection.aim
            for phase in plan.phases
            if isinstance(phase.selection, HiddenGate)
        ]
        numbers |= {"reserve": kept}
        yield (
            f"{known}: queries keep {listed(kept)} labels in reserve, and about {expected:,} are "
            "bought."
        )
        return
    numbers |= {"comparison_noise": gate.count_noise, "confirming_noise": gate.confirming_noise}
    asked = sum(phase.cohort_size for phase in plan.labeling_phases[1:])
    share = (expected - plan.phases[0].cohort_size) / asked
    if gate.label_cap is LabelCap.SUM:
        numbers |= {"reserve": [gate.reserve], "cap": gate.cap}
        kept_words = (
            f"all queries together keep {gate.reserve:,} of {gate.cap:,} labels in reserve, and "
            "what one buys too few, the next ones aim at"
        )
    else:
        numbers |= {"reserve": [step.reserve for step in gates], "cap": [g.cap for g in gates]}
        kept_words = f"queries keep {listed(numbers['reserve'])} labels in reserve"
    yield (
        f"{known}: {kept_words}. About {expected:,} are bought, {share:.0%} of what queries ask "
        f"for. Each search begins at the validation set's quantile, makes {gate.comparisons} "
        f"comparisons, each with noise of deviation {gate.count_noise:.3g}, and one count of "
        f"{gate.confirming_noise:.3g} that accepts the threshold; where it does not, as in about "
        f"{IN_VAIN:.0%} of queries whose cap is near, nobody is selected. A validation set that is "
        "unlike the pool costs labels, and no privacy."
    )


def _highest(plan: Plan) -> str:
    """Which of the highest-scored a gate selects."""
    share = precision_of(plan, 1)
    if plan.spec.candidates is None or share is None:
        return "all are among the highest-scored"
    return f"all are among the highest-scored candidates, and {share:.0%} among those of the pool"


def _label_sentences(plan: Plan, numbers: dict[str, Any]) -> Iterator[str]:
    steps = [phase.selection for phase in plan.labeling_phases[1:]]
    chance = shares(numbers["precision_by_chance"]) if steps else ""
    tossed = [
        phase.selection for phase in plan.phases if isinstance(phase.selection, SecretRandomDraw)
    ]
    if tossed:
        failing = sum(step.draw.failure_probability for step in tossed)
        numbers["too_many_drawn"] = failing
        yield (
            "Secret coins draw as many as planned on average, and what training does follows the "
            f"planned number; more than the most are drawn with a chance below {failing:.2g}, "
            "which is counted in delta."
        )
    gates = [step for step in steps if isinstance(step, HiddenGate)]
    if gates:
        overflow = sum(step.threshold.failure_probability for step in gates)
        numbers |= {"overflow": overflow}
        yield from _search_sentences(plan, gates, numbers)
        together = gates[0].label_cap is LabelCap.SUM
        what = "queries may buy together" if together else "the query may buy"
        yield (
            f"More pass than {what} with a chance below {overflow:.2g} in all, which is counted "
            f"in delta ({overflow / plan.spec.target.delta:.1%} of it). Of the selected, "
            f"{_highest(plan)}, where chance would find {chance}."
        )
    elif any(isinstance(step, VisibleAnswers) for step in steps):
        yield (
            "Answers are random, so how many say yes varies around the query; too few are "
            "filled up by chance, too many leave the pool unlabeled. Of the selected, "
            f"{shares(numbers['expected_precision'])} are expected among the "
            f"highest-scored, query by query; chance would find {chance}."
        )
    elif plan.spec.selects:
        yield (
            "The highest noisy scores are taken, exactly as many as the query says. How many "
            "of them are truly among the highest-scored depends on how far scores lie apart; "
            f"chance would find {chance}."
        )
    elif steps:
        yield f"Chance finds {chance} of the highest-scored, query by query."
