"""Why a plan has the numbers that it has, in words. Every number is computed here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.validation_cohort import about_pool
from dpal.labels import Task
from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.explain_head import explain_head
from dpal.planning.explain_schedule import noise, steps
from dpal.planning.explain_selection import labels, selection
from dpal.planning.explain_unlabeled import unlabeled
from dpal.planning.explain_words import (
    ROUNDED,
    Remark,
    accountant_name,
    against,
    certified_or_why,
    cohort_name,
    solved,
    telling_noise,
    total_steps,
)
from dpal.planning.measured_phases import headline_half_width, measured_counts
from dpal.privacy import Accountant, Adjacency, Unit

_CHANGE = {
    Adjacency.ZERO_OUT: "is blanked",
    Adjacency.REPLACE_ONE: "is replaced by any other",
}


def explain_campaign(certified: CertifiedPlan) -> tuple[Remark, ...]:
    """Explains a certified plan: the promise, what it costs, and what it leaves unprotected.

    Solves the plan again in other ways (naive, random selection, the other accountant), so
    it takes about as long as planning did.
    """
    measured = _figures(certified)
    return (
        _promise(certified),
        *_groups(certified),
        *_search(certified),
        selection(certified),
        *_training(certified),
        unlabeled(certified),
        _accountant(certified),
        _envelope(certified),
        labels(certified),
        *([] if measured is None else [measured]),
        _not_protected(certified),
    )


def _promise(certified: CertifiedPlan) -> Remark:
    """What is promised to whom."""
    spec, target = certified.plan.spec, certified.plan.spec.target
    failing = target.delta * spec.pool_size
    text = (
        f"For every {target.unit} of the {spec.pool_size:,} in the pool, labeled or not: if "
        f"its content {_CHANGE[target.adjacency]} (adjacency {target.adjacency}), no "
        f"statement about all that is released becomes more than exp({target.epsilon:g}) "
        f"times as likely, but for a chance of delta {target.delta:.3g}. That is "
        f"{failing:.2g} / pool size; from 1 / pool size on it would allow publishing "
        "somebody's record. "
        f"The plan spends {certified.epsilon:.4f} by {accountant_name(spec.accountant)}; "
        f"dp-accounting, the second opinion, finds {certified.epsilon_oracle:.4f}."
    )
    return Remark(
        topic="What is promised",
        text=text,
        numbers={
            "target_epsilon": target.epsilon,
            "delta": target.delta,
            "delta_times_pool": failing,
            "worst_epsilon": certified.epsilon,
            "epsilon_oracle": certified.epsilon_oracle,
        },
    )


def _training(certified: CertifiedPlan) -> tuple[Remark, ...]:
    """Why training has its noise and steps; of a head, what is released of records instead."""
    return explain_head(certified) or (noise(certified), steps(certified))


def _groups(certified: CertifiedPlan) -> tuple[Remark, ...]:
    """How all records of a group take part, where they do."""
    groups = certified.plan.spec.groups
    if groups is None:
        return ()
    bought = "all its records" if groups.labels is None else f"its first {groups.labels:,} records"
    text = (
        f"A group is all records with one value of column {groups.column!r}, and every size here "
        "counts groups. Its first record is drawn or scored for it; once it is selected, labels "
        f"are bought for {bought}. In a step a group joins by one coin with at most "
        f"{groups.records:,} of them, whose gradients are averaged and clipped once: the noise is "
        "that of as many single records."
    )
    numbers = {"group_records": groups.records, "group_labels": groups.labels}
    return (Remark(topic="Groups", text=text, numbers=numbers),)


def _search(certified: CertifiedPlan) -> tuple[Remark, ...]:
    """What trying settings first costs, where that is asked for."""
    plan, trial = certified.plan, certified.plan.trial
    if trial is None:
        return ()
    number, topic = len(plan.spec.trials), "What the search costs"
    text = (
        f"{number} settings of the training are tried before phase 0, by {trial.steps:,} steps "
        "each on the initial cohort, all of them charged; phase 0 starts from the best one's model."
    )
    numbers: dict[str, Any] = {"trials": number, "steps": trial.steps}
    instead = certified_or_why(plan.spec.varied(search=None))
    if not isinstance(instead, str):
        numbers["noise_multiplier"] = telling_noise(instead)
        text += f" Without a search the plan would have {against(instead, plan)}."
    return (Remark(topic=topic, text=text, numbers=numbers),)


def _accountant(certified: CertifiedPlan) -> Remark:
    """What tight accounting saves against Rényi bounds."""
    spec, topic = certified.plan.spec, "What the accountant saves"
    tight = spec.accountant is Accountant.PLD
    other = spec.varied(accountant=Accountant.RDP if tight else Accountant.PLD)
    # Rényi plans are solved over all paths at once; tight ones need the envelope's room.
    instead = solved(other) if tight else certified_or_why(other)
    if isinstance(instead, str):
        text = f"By {accountant_name(other.accountant)} there is no plan at all: {instead}."
        return Remark(topic=topic, text=text, numbers={})
    numbers = {
        "accountant": other.accountant.value,
        "noise_multiplier": telling_noise(instead),
        "total_steps": total_steps(instead),
    }
    compared = against(instead, certified.plan)
    if tight:
        text = (
            "Privacy loss distributions add losses up tightly. For the same promise, Rényi "
            f"bounds (RDP) with basic composition of selections would mean {compared}."
        )
    else:
        left = spec.target.epsilon - certified.epsilon_pld
        numbers["unused_epsilon"] = left
        text = (
            "Nothing: Rényi bounds overstate losses, and by privacy loss distributions this "
            f"plan spends {certified.epsilon_pld:.4f}, {left:.4f} less than promised. "
            f"With accountant pld it would have {compared}."
        )
    return Remark(topic=topic, text=text, numbers=numbers)


def _envelope(certified: CertifiedPlan) -> Remark:
    """What the certificate over all paths adds to the largest cohort's."""
    by_rdp = certified.plan.spec.accountant is Accountant.RDP
    paths = {
        cohort.spent.cohort: cohort.spent.epsilon_rdp if by_rdp else cohort.spent.epsilon_pld
        for cohort in (*certified.cohorts, certified.never_selected)
    }
    worst = max(paths, key=paths.__getitem__)
    whole = certified.epsilon
    if certified.validation is not None:  # whose records are on none of these paths
        pool = about_pool(list(certified.plan.releases()))
        whole = campaign_epsilon(
            pool, certified.plan.spec.target, accountant=certified.plan.spec.accountant
        )
    added = whole - paths[worst]
    largest = f"{paths[worst]:.4f} ({cohort_name(worst)})"
    spec = certified.plan.spec
    if spec.splits_budget:
        text = (
            "Who is drawn is a secret, and the others lose something as well: nobody knows which "
            f"of the two a record was. The certificate mixes both: {whole:.4f}. "
        )
        if spec.candidates is None or spec.self_training is None:
            text += "A cohort's own figure is what it would be if the others lost nothing."
        else:
            text += (
                "The figure of cohort 0 is what it would be if the others lost nothing. Those of "
                "the selected are what they would be if everybody knew who was a candidate; they "
                "may be above the promise, which counts on nobody knowing."
            )
    elif not spec.selects:
        text = (
            "Nothing: records join cohorts without being looked at, so the largest cohort's "
            f"epsilon holds for all: {largest}."
        )
    elif by_rdp:
        text = (
            "Nothing: pure losses of selections plus a bound for training hold whatever "
            f"decides who joins which cohort, so the largest path's holds for all: {largest}."
        )
    else:
        above = f"{added:.4f} above" if added >= ROUNDED else "no more than"
        text = (
            "Which cohort a record joins is decided by noisy outputs about it, so a bound "
            "for each path by itself proves nothing. The certificate takes the worst path "
            f"after every single output: {whole:.4f}, {above} the largest single path's "
            f"{largest}."
        )
    return Remark(
        topic="What the certificate adds",
        text=text,
        numbers={"campaign_epsilon": whole, "largest_path": paths[worst], "added": added},
    )


def _of_validation(certified: CertifiedPlan) -> list[str]:
    validation = certified.plan.spec.validation
    if validation is None:
        return ["the validation set and every metric computed on it"]
    if validation.groups is not None:
        return [
            "how many validation records and groups there are, who belongs together there and in "
            "which order, and which classes"
        ]
    return ["how many validation records there are, and which classes"]


def _figures(certified: CertifiedPlan) -> Remark | None:
    """What figures on a protected validation set cost its records, and how precise they are."""
    told = certified.summary().get("validation")
    if told is None:
        return None
    model = certified.plan.spec.model
    sampling = headline_half_width(model, told["records"], 0.0)
    several = model.task is Task.MULTI_LABEL
    figure = "Micro-F1" if several else "Accuracy"
    usual = " and a record has one label on average" if several else ""
    unit, whose = certified.plan.spec.target.unit, "none of the pool's"
    if "groups" in told:
        whose = (
            f"of {told['groups']:,} groups of which none is in the pool, the first "
            f"{told['group_records']} of each at most"
        )
    if "share" in told:
        whose += (
            f", a share of {told['share']:g} that a declared coin for each "
            f"{'group' if 'groups' in told else 'id'} held out"
        )
    searched = certified.plan.trial is not None
    models = "The model of each phase and trial" if searched else "Each phase's model"
    text = (
        f"{models} is measured once on {told['records']:,} records that are {whose}, "
        f"by counts with noise {told['noise']:.3g}. All of them together cost each {unit} there "
        f"epsilon {told['epsilon']:.4f}, which no {unit} of the pool pays. {figure} is then known "
        f"to ± {100 * told['half_width']:.1f} points (95 %, where it is 80 %{usual}); "
        f"without noise so many records would tell it to ± {100 * sampling:.1f}. "
        f"{_area(certified, told)}The released phase, {'the best trial ' if searched else ''}and "
        "an early stop are chosen by these figures alone."
    )
    return Remark(topic="What figures cost", text=text, numbers=dict(told))


def _area(certified: CertifiedPlan, told: Mapping[str, Any]) -> str:
    """How precise the area under the ROC curve is, and what it costs the other figures."""
    spec = certified.plan.spec
    if "auc_half_width" not in told or spec.validation is None:
        return ""
    counted = measured_counts(spec.model, spec.validation)
    with_it, without = (
        replace(counted, auc=auc).squared_sensitivity(spec.target.adjacency)
        for auc in (True, False)
    )
    return (
        f"The area under the ROC curve is known to ± {100 * told['auc_half_width']:.1f} points "
        "(where it is 80 %), and what bins of scores may hide; without it (validation.auc) the "
        f"noise would be {math.sqrt(without / with_it):.2f} times as large. "
    )


def _not_protected(certified: CertifiedPlan) -> Remark:
    """What nobody should read into the promise."""
    spec = certified.plan.spec
    limits = [
        f"who is in the pool, and that it has {spec.pool_size:,} {spec.members}",
        *_of_validation(certified),
        "what the labeler sees",
        "settings that somebody chose by looking at private records",
        f"people in several groups: the unit is one {spec.target.unit}"
        if spec.target.unit is Unit.GROUP
        else "people with several records: the unit is one record",
        "other campaigns on the same pool: epsilons add up",
    ]
    if spec.groups is not None:
        limits.append("who belongs to which group, and how many records each one has")
    if spec.target.adjacency is Adjacency.ZERO_OUT:
        limits.append(
            "that a known record would be informative: its content is protected, not that"
        )
    if spec.secret_draw or (spec.selects and spec.selection is SelectionMode.HIDDEN):
        limits.append(
            "anything once ids, counts, batches or bills of the labeling leave the process: "
            "then selection must be visible"
        )
    return Remark(
        topic="What is not protected",
        text="Not part of the promise: " + "; ".join(limits) + ".",
        numbers={},
    )
