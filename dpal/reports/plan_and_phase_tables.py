"""Plans and metrics in words and tables. Everything in them is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.budget_cohort_names import is_budget_cohort
from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import VALIDATION
from dpal.certificate.promise_checks import CAMPAIGN, paper_mark
from dpal.ledger.data_set_accounts import Basis
from dpal.planning.campaign_spec import LabelCap, Strategy
from dpal.privacy import Unit
from dpal.reports.ledger_words import COUNTED
from dpal.reports.report import Table, capital, spent_bar, table
from dpal.reports.validation_figures import (
    against_best_before,
    figure_words,
    figures_in,
    further_intervals,
    headline,
    interval_words,
    is_protected,
    percent,
)


def plan_table(summary: Mapping[str, Any]) -> Table:
    """What each phase will do. Where groups are protected, these are counted."""
    alone = any(phase["catch_up_steps"] for phase in summary["phases"])
    rows = (
        {
            "phase": phase["phase"],
            "selection": _how_selected(phase),
            f"new {labels_counted(summary['unit'])}": _new_labels(phase),
            **({"steps on new alone": f"{phase['catch_up_steps']:,}"} if alone else {}),
            "steps": f"{phase['steps']:,}",
            "noise": f"{phase['noise_multiplier']:.4f}",
            "rate old": f"{phase['sample_rate_old']:.4f}" if phase["phase"] else "-",
            "rate new": f"{phase['sample_rate_new']:.4f}",
            "batch": f"{phase['expected_batch_size']:,.1f}",
        }
        for phase in summary["phases"]
    )
    return table("Plan by phase", rows)


def _new_labels(phase: Mapping[str, Any]) -> str:
    """How many are bought: at most so many, or on average where secret coins or gates decide."""
    planned, search = phase["cohort_size"], phase.get("threshold_search", {})
    if phase.get("pseudo_labels", False):
        return f"none; {planned:,} pseudo-labels"
    if search.get("label_cap") == LabelCap.SUM:
        return f"about {search['aim']:,}, all queries at most {search['cap']:,}"
    most = phase.get("most_labels", planned)
    return f"{planned:,}" if most == planned else f"about {planned:,}, at most {most:,}"


def cohort_table(summary: Mapping[str, Any]) -> Table:
    """What each cohort will have spent at the end, and anybody on whatever path."""
    size, never = summary["pool_size"], f"{summary['never_selected_epsilon']:.4f}"
    rest = size - sum(cohort["size"] for cohort in summary["cohorts"])
    both = (f"{summary[key]:.4f}" for key in ("epsilon_rdp", "epsilon_pld"))
    rows = [
        (
            str(cohort["cohort"]),
            f"{cohort['size']:,}",
            *(f"{cohort[key]:.4f}" for key in ("selection_epsilon", "epsilon_rdp", "epsilon_pld")),
        )
        for cohort in summary["cohorts"]
    ]
    rows += [("never selected", f"{rest:,}", "all of it", "-", never)]
    rows += [("any path", f"{size:,}", "-", *both)]
    columns = ("cohort", f"{summary['unit']}s", "selection", "epsilon (RDP)", "epsilon (PLD)")
    return Table("Epsilon by cohort, at the end", columns, tuple(rows))


def shares_table(summary: Mapping[str, Any]) -> Table:
    """How far each block of the data set takes part, and what this campaign takes of it."""
    rows = (
        {
            "block": block["block"],
            "records": f"{block['size']:,}",
            "takes part": f"{100 * block['participation']:.1f} %",
            "epsilon of this campaign": f"{block['epsilon']:.4f}",
            "counted": COUNTED[Basis(block["basis"])],
        }
        for block in summary["blocks"]
    )
    return table("Blocks of the data set that take part", rows)


def validation_table(
    phases: Sequence[Mapping[str, Any]], released: int, unit: str = Unit.RECORD
) -> Table:
    """Figures on the validation set after each finished phase, of which there is one.

    Args:
      phases: metrics of the finished phases.
      released: number of the phase whose model is the campaign's.
      unit: what is protected, and counted.
    """
    # A figure that is not defined on a set of labels is not in any phase's metrics.
    rows = (
        {
            "phase": f"{phase['phase']}{' (released)' if number == released else ''}",
            f"{labels_counted(unit)}, planned": f"{phase['labels']:,}",
            **{f"validation {name}": percent(value) for name, value in figures_in(phase).items()},
            **({"95 % interval": interval_words(phase)} if is_protected(phase) else {}),
            **further_intervals(phase),
            **({"against the best before": _compared(phases, number)} if len(phases) > 1 else {}),
            "epsilon so far": f"{phase['campaign_epsilon']:.4f}",
        }
        for number, phase in enumerate(phases)
    )
    return table(f"{capital(headline(phases[0])[0])} by phase", rows)


def spent_table(spent: Mapping[str, Any], promised: Mapping[str, Any]) -> Table:
    """What each cohort has spent, and anybody on whatever path, under the promise.

    Args:
      spent: metrics of a phase, or the ledger's own sum.
      promised: summary of the plan, or the promise that the ledger holds.
    """
    target, whole = promised["target_epsilon"], f"{spent['campaign_epsilon']:.4f}"
    keys = ("selection_epsilon", "epsilon_rdp", "epsilon_pld")
    key = f"epsilon_{promised['accountant']}"
    rows = [
        (cohort_words(cohort["cohort"]), *(f"{cohort[key]:.4f}" for key in keys))
        for cohort in spent["cohorts"]
    ]
    anybody = any_path(promised["unit"])
    rows.append((anybody, *(whole if column == key else "-" for column in keys)))
    epsilons = (*(cohort[key] for cohort in spent["cohorts"]), spent["campaign_epsilon"])
    after = f"after phase {spent['phase']}" if "phase" in spent else "as the ledger adds it up"
    return Table(
        f"Epsilon by cohort, {after}",
        ("cohort", "of it, selections", "epsilon (RDP)", "epsilon (PLD)"),
        tuple(rows),
        bars=tuple(spent_bar(epsilon, target) for epsilon in epsilons),
        bars_title=f"of the promise (red: {target:g})",
        total=True,
    )


def above_the_promise(
    cohorts: Sequence[Mapping[str, Any]], promised: Mapping[str, Any], *, whole: float
) -> str | None:
    """What it means that a cohort's figure passes a promise that is kept; None if none does.

    Args:
      cohorts: with the epsilons of each, as in `spent_table`.
      promised: summary of the plan, or the promise that the ledger holds.
      whole: epsilon of anybody, on whatever path.
    """
    target, key = promised["target_epsilon"], f"epsilon_{promised['accountant']}"
    if whole > target or all(cohort[key] <= target for cohort in cohorts):
        return None
    return (
        "A cohort's figure above the promise is what its records would lose if everybody knew who "
        "was a candidate for the queries. Nobody knows, and the promise counts on that: it is "
        "about the last row."
    )


def terms(summary: Mapping[str, Any]) -> str:
    """What belongs to every epsilon: of a summary, or of anything that has its keys."""
    return f"delta {summary['delta']:.3g}, adjacency {summary['adjacency']}, unit {summary['unit']}"


def figures_in_plan(summary: Mapping[str, Any]) -> str:
    """What figures on a protected validation set cost its records, and how precise they will be."""
    told = summary["validation"]
    figure = figure_words(told.get("figure", "accuracy"))
    area = ""
    whose = f" of {told['groups']:,} groups" if "groups" in told else ""
    if "share" in told:
        each = "group" if "groups" in told else "id"
        whose += f" ({told['share']:g} of the pool, held out by a declared coin for each {each})"
    if "auc_half_width" in told:
        area = f", AUC ± {100 * told['auc_half_width']:.1f} and what bins hide (at 80 %)"
    return (
        f"validation set protected: {figure} ± {100 * told['half_width']:.1f} points in each phase "
        f"(95 %, at 80 % {figure}){area}, at epsilon {told['epsilon']:.4f} for all phases "
        f"{'and trials ' if 'search' in summary else ''}together on {told['records']:,} "
        f"records{whose}"
    )


def cohort_words(name: str) -> str:
    """A cohort as a person calls it.

    >>> cohort_words("3"), cohort_words("never_selected")
    ('cohort 3', 'never selected')
    """
    if name == VALIDATION:
        return "validation set"
    if is_budget_cohort(name):
        return f"teachers of {name.replace('-', ' ')}"
    return f"cohort {name}" if name.isdecimal() else name.replace("_", " ")


def labels_counted(unit: str) -> str:
    """What numbers of labels count: a group has labels for all of its records that take part.

    >>> labels_counted("record"), labels_counted("group")
    ('labels', 'labeled groups')
    """
    return "labels" if unit == Unit.RECORD else f"labeled {unit}s"


def any_path(unit: str) -> str:
    """Whom the promise is about, beside the cohorts.

    >>> any_path("group")
    'any group, any path'
    """
    return f"any {unit}, any path"


def kept_so_far(spent: float, summary: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a promise is kept, and what was spent of it. NaN is no promise kept."""
    target = summary["target_epsilon"]
    return (
        spent <= target,
        f"Any {summary['unit']} has lost at most epsilon {spent:.4f} at {terms(summary)}, of "
        f"{target:g} promised, whatever path it took.",
    )


def promise(summary: Mapping[str, Any]) -> str:
    """The promise in one sentence, with everything that belongs to an epsilon."""
    adjacency = {"zero_out": "blanked", "replace_one": "replaced by another"}
    # What must be said of a delta that only published results have.
    mark = paper_mark(summary["delta"], summary["unit"], summary.get("pool_size"))
    return (
        f"epsilon {summary['target_epsilon']:g} at delta {summary['delta']:.3g} for every "
        f"{summary['unit']} of the pool, when its content is {adjacency[summary['adjacency']]} "
        f"(adjacency {summary['adjacency']})" + (f"; {mark}" if mark else "")
    )


def promises(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The promise of several plans, at least one: of what differs among them, that it does."""
    told = dict.fromkeys(map(promise, summaries))
    if len(told) == 1:
        return f"promised: {next(iter(told))}"
    marks = (paper_mark(one["delta"], one["unit"], one.get("pool_size")) for one in summaries)
    mark = next(filter(None, marks), "")
    return f"each plan has a promise of its own: {shared_promise(summaries)}" + (
        f"; {mark}" if mark else ""
    )


def shared_promise(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What plans promise, in a line; of what differs among them, that it does."""
    parts = []
    for key, word in (("target_epsilon", "epsilon"), ("delta",) * 2, ("adjacency",) * 2,
                      ("unit",) * 2, ("accountant",) * 2):  # fmt: skip
        values = list(dict.fromkeys(summary[key] for summary in summaries))
        said = "differs" if len(values) > 1 else "".join(map(_short, values))
        parts.append(f"{word} {said}")
    return ", ".join(parts)


def other_strategy(used: Strategy, asked: Strategy) -> str:
    """Why a plan is not by the strategy that was asked for."""
    return (
        f"planned by strategy {used}: {asked}, which was asked for, keeps the promise with no "
        "amount of noise"
    )


def figures_in_words(accountant: str) -> str:
    """Which of the two figures of every cohort keeps the promise.

    >>> figures_in_words("pld")
    'The promise is kept by PLD; figures by RDP are looser bounds, for information.'
    """
    keeper = Accountant(accountant)
    other = next(candidate for candidate in CAMPAIGN if candidate is not keeper)
    kind = "looser bounds" if keeper is Accountant.PLD else "tighter bounds"
    return (
        f"The promise is kept by {CAMPAIGN[keeper].short}; figures by {CAMPAIGN[other].short} are "
        f"{kind}, for information."
    )


def others(summary: Mapping[str, Any]) -> str:
    """What other campaigns on the same records mean."""
    if summary["blocks"]:
        return (
            "Other campaigns on the same data set are counted together with this one, up to "
            "the limit that its owner set (`dpal data show`)."
        )
    return (
        "Other campaigns on the same pool add to these epsilons; no data set is registered, so "
        "each is accounted for on its own."
    )


def _compared(phases: Sequence[Mapping[str, Any]], phase: int) -> str:
    compared = against_best_before(phases, phase)
    return "-" if compared is None else compared.words()


def _how_selected(phase: Mapping[str, Any]) -> str:
    """A few words on how a phase picks its records."""
    if phase.get("pseudo_labels", False):
        return "all that are left"
    by_mechanism = {event["mechanism"]: event for event in phase["selection"]}
    if "laplace" in by_mechanism:
        return f"noisy scores, epsilon {by_mechanism['laplace']['epsilon']:.3g}"
    if not by_mechanism:
        return "random"
    if "secret_draw" in by_mechanism:
        return f"random by secret coins, chance {by_mechanism['secret_draw']['chance']:.3g}"
    what = "answers" if "anchored_answers" in by_mechanism else "gate"
    return f"{what}, noise {by_mechanism['noisy_threshold']['noise_multiplier']:.3g}"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
