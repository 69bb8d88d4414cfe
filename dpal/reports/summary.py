"""Plans and metrics in words and tables. Everything in them is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.cohorts import Accountant
from dpal.certificate.promise import CAMPAIGN, paper_mark
from dpal.planning.spec import Strategy
from dpal.reports.report import Table
from dpal.reports.validation import figures_in, headline, percent


def plan_table(summary: Mapping[str, Any]) -> Table:
    """What each phase will do."""
    alone = any(phase["catch_up_steps"] for phase in summary["phases"])
    rows = []
    for phase in summary["phases"]:
        row = [
            str(phase["phase"]),
            _how_selected(phase["selection"]),
            f"{phase['cohort_size']:,}",
            *([f"{phase['catch_up_steps']:,}"] if alone else []),
            f"{phase['steps']:,}",
            f"{phase['noise_multiplier']:.4f}",
            f"{phase['sample_rate_old']:.4f}" if phase["phase"] else "-",
            f"{phase['sample_rate_new']:.4f}",
            f"{phase['expected_batch_size']:,.1f}",
        ]
        rows.append(tuple(row))
    columns = ["phase", "selection", "new labels", *(["steps on new alone"] if alone else [])]
    columns += ["steps", "noise", "rate old", "rate new", "batch"]
    return Table("Plan by phase", tuple(columns), tuple(rows))


def cohort_table(summary: Mapping[str, Any]) -> Table:
    """What each cohort will have spent at the end, and any record on whatever path."""
    rest = summary["pool_size"] - sum(one["size"] for one in summary["cohorts"])
    return Table(
        "Epsilon by cohort, at the end",
        ("cohort", "records", "selection", "epsilon (RDP)", "epsilon (PLD)"),
        (
            *(
                (
                    str(one["cohort"]),
                    f"{one['size']:,}",
                    f"{one['selection_epsilon']:.4f}",
                    f"{one['epsilon_rdp']:.4f}",
                    f"{one['epsilon_pld']:.4f}",
                )
                for one in summary["cohorts"]
            ),
            ("never selected", f"{rest:,}", "all of it", "-",
             f"{summary['never_selected_epsilon']:.4f}"),
            ("any path", f"{summary['pool_size']:,}", "-",
             f"{summary['epsilon_rdp']:.4f}", f"{summary['epsilon_pld']:.4f}"),
        ),
    )  # fmt: skip


def shares_table(summary: Mapping[str, Any]) -> Table:
    """How far each block of the data set takes part, and what this campaign takes of it."""
    return Table(
        "Blocks of the data set that take part",
        ("block", "records", "takes part", "epsilon of this campaign", "counted"),
        tuple(
            (
                str(one["block"]),
                f"{one['size']:,}",
                f"{100 * one['participation']:.1f} %",
                f"{one['epsilon']:.4f}",
                "with other campaigns" if one["basis"] == "renyi" else "alone; takes all",
            )
            for one in summary["blocks"]
        ),
    )


def validation_table(phases: Sequence[Mapping[str, Any]]) -> Table:
    """Figures on the validation set after each finished phase, of which there is one."""
    name, _ = headline(phases[0])
    # A figure that is not defined on a set of labels is not in any phase's metrics.
    columns = [f"validation {one}" for one in figures_in(phases[0])]
    return Table(
        f"{name[0].upper()}{name[1:]} by phase",
        ("phase", "labels, up to", *columns, "epsilon so far"),
        tuple(
            (
                str(phase["phase"]),
                f"{phase['labels']:,}",
                *(percent(value) for value in figures_in(phase).values()),
                f"{phase['campaign_epsilon']:.4f}",
            )
            for phase in phases
        ),
    )


def spent_table(spent: Mapping[str, Any]) -> Table:
    """What each cohort has spent, from the ledger: metrics of a phase, or the ledger's view."""
    after = f"after phase {spent['phase']}" if "phase" in spent else "as the ledger adds it up"
    return Table(
        f"Epsilon by cohort, {after}",
        ("cohort", "selection", "epsilon (RDP)", "epsilon (PLD)"),
        tuple(
            (
                one["cohort"].replace("_", " "),
                f"{one['selection_epsilon']:.4f}",
                f"{one['epsilon_rdp']:.4f}",
                f"{one['epsilon_pld']:.4f}",
            )
            for one in spent["cohorts"]
        ),
    )


def terms(summary: Mapping[str, Any]) -> str:
    """What belongs to every epsilon: of a summary, or of anything that has its keys."""
    return f"delta {summary['delta']:.3g}, adjacency {summary['adjacency']}, unit {summary['unit']}"


def cohort_words(name: str) -> str:
    """A cohort as a person calls it.

    >>> cohort_words("3"), cohort_words("never_selected")
    ('cohort 3', 'never selected')
    """
    return f"cohort {name}" if name.isdecimal() else name.replace("_", " ")


def kept_so_far(spent: float, summary: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a promise is kept, and what was spent of it. NaN is no promise kept."""
    target = summary["target_epsilon"]
    return (
        spent <= target,
        f"Any record has lost at most epsilon {spent:.4f} at {terms(summary)}, of {target:g} "
        "promised, whatever path it took.",
    )


def promise(summary: Mapping[str, Any]) -> str:
    """The promise in one sentence, with everything that belongs to an epsilon."""
    adjacency = {"zero_out": "blanked", "replace_one": "replaced by another"}
    return (
        f"epsilon {summary['target_epsilon']:g} at delta {summary['delta']:.3g} for every "
        f"{summary['unit']} of the pool, when its content is "
        f"{adjacency[summary['adjacency']]} (adjacency {summary['adjacency']}){_mark(summary)}"
    )


def _mark(summary: Mapping[str, Any]) -> str:
    """What must be said of a delta that only published results have."""
    mark = paper_mark(summary["delta"], summary["unit"], summary.get("pool_size"))
    return mark and f"; {mark}"


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
    other = next(one for one in CAMPAIGN if one is not keeper)
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


def _how_selected(events: Sequence[Mapping[str, Any]]) -> str:
    """A few words on how a phase picks its records."""
    by_mechanism = {event["mechanism"]: event for event in events}
    if "laplace" in by_mechanism:
        return f"noisy scores, epsilon {by_mechanism['laplace']['epsilon']:.3g}"
    if not by_mechanism:
        return "random"
    what = "answers" if "anchored_answers" in by_mechanism else "gate"
    return f"{what}, noise {by_mechanism['noisy_threshold']['noise_multiplier']:.3g}"
