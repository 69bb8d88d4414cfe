"""Tables of what teachers tell and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.certificate.promise_checks import VOTES
from dpal.certificate.sentences import vote_statements
from dpal.privacy import Unit
from dpal.reports.report import Block, Report, Table, capital, section, table
from dpal.reports.run_report import RunFacts, run_report, spent_bars
from dpal.reports.validation_figures import percent
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released

PRIVATE_COLUMNS = ("these votes, exact", "these votes, published bound")
PRIVATE_NOTE = (
    "Figures of these votes are private themselves: they promise nothing to others, they may not "
    "decide how many queries are asked, and the published bound holds in one direction only "
    "(with a confidence check it is an expectation). What is certified holds whatever the votes "
    "are."
)
_ANSWERED = (0.01, 0.05, 0.2, 1.0)  # shares of answered queries that are shown
_FIGURES = {
    "accuracy": "right answers",
    "balanced_accuracy": "balanced accuracy",
    "average_precision": "mAP",
}
EXPECTED_NOTE = (
    "How many queries epsilon pays for by costs of these votes, and how right answers are, is an "
    "EXPECTATION, not a guarantee: whoever asks as many queries because of it keeps no promise. "
    "Queries are taken in the order of the file."
)
RECOGNITION_NOTE = (
    "Teachers were compared with those of the other accounts in this folder by name, and by their "
    "ballots on queries of the same ids; that two ensembles were trained on the same records, "
    "nothing in ballots shows."
)


def recognition_words(other_teachers: Mapping[str, str]) -> tuple[str, ...]:
    """How teachers are recognised, and what somebody said to tell them from others.

    Args:
      other_teachers: reasons, by name of the account with the other ones.
    """
    said = (
        f"said to be other teachers than those of {account}: {reason}"
        for account, reason in sorted(other_teachers.items())
    )
    return (RECOGNITION_NOTE, *said)


@dataclass(frozen=True, kw_only=True)
class ReleasedBlock:
    """What a block of an account released.

    Attributes:
      file: of the labels, below the account's folder.
      queries: how many were asked.
      labels: (queries, labels), or (queries,) classes, as released.
      note: what else was released with them, in a sentence, if anything was.
    """

    file: str
    queries: int
    labels: NDArray[np.int8] | NDArray[np.int64]
    note: str | None


def rule_words(summary: Mapping[str, Any]) -> str:
    """How queries are answered, in a line."""
    near = summary.get("near")
    if near is not None:
        single, group = summary["mechanism"] == "gnmax", summary["unit"] == "group"
        what = "classes" if single else "labels"
        who = "those of a group together, and each group" if group else "each"
        above = f"above {near['bar']:g} of it"
        if not single:
            above = f"where yes and no are {near['bar']:g} of their noise apart"
        return (
            f"about {near['neighbours']:g} private records near a query vote on "
            f"{summary['labels']} {what}, {who} on at most {near['votes']:,} queries of a block, "
            f"sigma {summary['sigma']:g}, answered {above}{_campaign_words(near)}"
        )
    limit = "" if summary["limit"] is None else f", limit {summary['limit']:g}"
    threshold = summary.get("threshold")  # plans of earlier versions do not say it
    checked = (
        ""
        if threshold is None
        else f", answered above {threshold:g} votes (noise {summary['threshold_sigma']:g})"
    )
    gated = ""
    if summary.get("gate") is not None:
        dependents = ", ".join(map(str, summary["dependents"]))
        gated = f", label {summary['gate']} first and {dependents} only where it is present"
    told = ", released as noisy counts" if summary.get("release") == "counts" else ""
    asked = ""
    if consensus := summary.get("consensus"):
        asked = (
            f", where about {consensus['threshold']:,} of them object to a public model, "
            f"{consensus['objections']:,} times at most"
        )
    return (
        f"{summary['mechanism']} voting of {summary['teachers']} teachers on {summary['labels']} "
        f"labels, sigma {summary['sigma']:g}{limit}{checked}{gated}{told}{asked}"
    )


def _campaign_words(near: Mapping[str, Any]) -> str:
    """Which blocks campaigns may ask for labels."""
    blocks = near.get("blocks", 0)
    return f"; the last {blocks:,} blocks are for campaigns, with votes on all" if blocks else ""


def vote_cost_table(summary: Mapping[str, Any]) -> Table:
    """What an account may tell, and what that costs whatever the votes are."""
    rows = [
        ("queries", f"{summary['queries']:,} in {len(summary['blocks'])} blocks"),
        ("accountant", str(summary["accountant"])),
        ("epsilon", f"{summary['epsilon']:.4f} of {summary['target_epsilon']:g} promised"),
        ("second opinion", f"{summary['epsilon_oracle']:.4f}"),
        ("delta", f"{summary['delta']:.3g}"),
        ("unanimous votes turned", f"{percent(summary['unanimous_turned'])} by noise alone"),
        ("adjacency, unit", f"{summary['adjacency']} ({_moved(summary)}), {summary['unit']}"),
        *_bound_rows(summary),
        *_charge_rows(summary),
        *_budget_rows(summary),
        *_consensus_rows(summary),
    ]
    return Table("Votes", ("", "account"), tuple(rows))


def _moved(summary: Mapping[str, Any]) -> str:
    """What is another one in a neighbouring world."""
    near = summary.get("near")
    if near is None:
        return "one ballot replaced"
    most = f"at most {near['votes']:,} in each block"
    rest = ", and on every query of those for campaigns" if near.get("blocks") else ""
    return f"a {summary['unit']}'s votes, {most}{rest}"


def _budget_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Teachers that promise their records less, and on how many queries they vote."""
    rows = []
    for budget in summary.get("budgets", ()):
        last = " or ".join(f"{queries:,}" for queries in sorted(set(budget["queries"])))
        votes = f"voting until query {last} of each block"
        told = votes if any(budget["queries"]) else "silent: not one query is paid for"
        many = f"{len(budget['teachers']):,} of {summary['teachers']:,}"
        rows.append((f"teachers of epsilon {budget['epsilon']:g}", f"{many}, {told}"))
    return rows


def _consensus_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How often teachers are asked, and how clearly they must object."""
    if (consensus := summary.get("consensus")) is None:
        return []
    told = PublicConsensus(**consensus)
    return [
        ("teachers answer", f"at most {told.objections:,} queries; a public model the others"),
        (
            "they object",
            f"from {told.threshold:,} of {summary['teachers']:,} on, found with epsilon "
            f"{told.epsilon:.4g} each: mean noise of {told.mean_noise:.3g} votes",
        ),
        (
            "objections by noise alone",
            f"to {percent(told.false_objection_probability)} of the queries on which no teacher "
            "objects",
        ),
    ]


def _charge_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How many queries charges by their outcome pay for, by how many are answered."""
    charges = summary.get("charges")
    if charges is None:
        return []
    counts = []
    for share in _ANSWERED:
        mean = share * charges["answered"] + (1 - share) * charges["unanswered"]
        counts.append(f"{charges['limit'] / mean:,.0f} if {share:.0%}")
    ratio = charges["answered"] / charges["unanswered"]
    return [
        ("an answer is charged", f"{ratio:.1f} times what an unanswered query is"),
        ("a block pays for about", f"{', '.join(counts)} of its queries are answered"),
    ]


def _bound_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is to be expected of a told bound: before anything is spent, and public."""
    guessed, bound = summary.get("agreement"), summary.get("bound")
    if guessed is None:
        return []
    if bound is None:
        plain = "not used: without it no more noise is needed, whatever the votes are"
        return [("told bound", plain)]
    rows = [
        (
            f"answers leave with noise {summary['sigma']:.4g}",
            ", ".join(
                f"{percent(chance)} "
                + ("if teachers agree as guessed" if by == "0" else f"if {float(by):.0%} less")
                for by, chance in guessed["leave"].items()
            ),
        )
    ]
    noisier = bound.get("fallback_sigma")
    otherwise = "no answer leaves" if noisier is None else f"answers leave with noise {noisier:.4g}"
    return [*rows, ("otherwise", f"{otherwise}; the cost is the same")]


def modes_table(rows: Sequence[tuple[str, float, str]]) -> Table:
    """Costs of the same queries, counted in several ways."""
    cells = tuple((name, f"{epsilon:.4f}", claim) for name, epsilon, claim in rows)
    return Table("Ways to count the same queries", ("mode", "epsilon", "what it promises"), cells)


def expected_table(
    found: Sequence[Mapping[str, Any]], swept: Sequence[Mapping[str, float]] | None = None
) -> Table:
    """How far a promise would go if costs followed the votes, and what would be answered.

    Args:
      found: of every row.
      swept: the settings of every row, if any.
    """
    settings = swept or [{}] * len(found)
    rows = (
        {**{key: f"{value:g}" for key, value in values.items()}, **_expected_cells(one)}
        for values, one in zip(settings, found, strict=True)
    )
    return table("Expected of these votes, no promise", rows)


def _expected_cells(found: Mapping[str, Any]) -> dict[str, str]:
    """Figures on true labels only where there are any."""
    paid, asked = found["paid_for"], found["asked"]
    cells = {
        f"queries paid for, {mode}": f"all {asked:,}" if count == asked else f"{count:,}"
        for mode, count in paid.items()
    }
    if "queries" in found:
        cells["queries expected"] = f"{found['queries']:,.1f} of {asked:,}"
    cells["answers expected"] = f"{found['answers']:,.1f}"
    for key, name in _FIGURES.items():
        if key in found:
            cells[name] = "-" if found[key] is None else percent(found[key])
    return cells


def sweep_table(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Votes over the values of one setting, or of several."""
    private = all("exact" in row for row in rows)
    title = f"Votes over {', '.join(keys)}"
    return table(title, (_swept(keys, row, private=private) for row in rows))


def _swept(keys: Sequence[str], row: Mapping[str, Any], *, private: bool) -> dict[str, str]:
    swept = {key: f"{row['values'][key]:g}" for key in keys}
    checked = _checked(row)
    cells = {
        **swept,
        **{name: value for name, value in checked.items() if name not in swept},
        "epsilon of all": f"{row['epsilon']:.4f}",
        "queries that fit": f"{row['fit']:,}",
        "unanimous votes turned": percent(row["unanimous"]),
    }
    if private:
        cells["these answers turned"] = "-" if row["turned"] is None else percent(row["turned"])
        costs = f"{row['exact']:.4f}", f"{row['papernot']:.4f}"
        cells |= dict(zip(PRIVATE_COLUMNS, costs, strict=True))
    return cells


def _checked(row: Mapping[str, Any]) -> dict[str, str]:
    """Noise and threshold, where answers are checked."""
    if "threshold" not in row:
        return {}
    return {
        "sigma": f"{row['sigma']:.4g}",
        "threshold": f"{row['threshold']:.4g} ± {row['threshold_sigma']:.3g}",
    }


def threshold_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Thresholds with the least noise that fits, and how often agreement is answered."""
    cells = (
        {
            "answer from": f"{row['answer_from']:.0%}",
            **_checked(row),
            "unanimous votes turned": percent(row["unanimous"]),
            **{
                f"answered at {float(share):.0%}": f"{chance:.0%}"
                for share, chance in row["answered"].items()
            },
        }
        for row in rows
    )
    return table("Thresholds, whatever the votes are", cells)


def advice_table(options: Sequence[Mapping[str, Any]]) -> Table:
    """Mechanisms, the one to choose first."""
    rows = (
        {
            "mechanism": option["mechanism"],
            "limit": "-" if option["limit"] is None else f"{option['limit']:.3g}",
            "sigma": f"{option['sigma']:.3g}",
            "queries": f"{option['queries']:,}",
            "why": option["why"],
        }
        for option in options
    )
    return table("Mechanisms", rows)


def absence_table(names: Sequence[str], shares: NDArray[np.float64]) -> Table:
    """Of the public records without one label, the share without another one.

    Args:
      names: k names.
      shares: (k, k), as of `absent_together`.
    """
    rows = (
        {
            "without": name,
            **{
                other: "" if first == second else f"{shares[first, second]:.3f}"
                for second, other in enumerate(names)
            },
        }
        for first, name in enumerate(names)
    )
    return table("Labels that are absent together", rows)


def gate_table(options: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Gates, what they save and what they lose; the one that saves most first."""
    rows = (
        {
            "gate": names[option["gate"]],
            "dependents": ", ".join(names[label] for label in option["dependents"]),
            "queries": f"{option['times']:.2f} times as many",
            "positives lost": f"{percent(option['lost'])} of the dependents'",
        }
        for option in options
    )
    return table("Gates", rows)


def answer_rates_table(names: Sequence[str], labels: NDArray[np.integer]) -> Table:
    """What was released, label by label: share answered, and share of yes among those.

    Args:
      names: k names, numbers where there are none.
      labels: (queries, k) released ones.
    """
    rows = []
    for label, answers in enumerate(labels.T):
        said = answers[answers != UNANSWERED]
        name = names[label] if names else str(label)
        share = len(said) / max(1, len(answers))
        rows.append((name, percent(share), percent(said.mean()) if len(said) else "-"))
    return Table("Released labels", ("label", "answered", "yes"), tuple(rows))


def account_report(
    facts: RunFacts,
    blocks: Sequence[ReleasedBlock],
    *,
    names: Sequence[str],
    has_summary: bool,
    other_teachers: Mapping[str, str],
) -> Report:
    """Tells an account of `dpal vote`, from what was released alone.

    Args:
      facts: what every run has; the summary is that of the certified plan.
      blocks: that were released.
      names: of the labels; empty where there are none.
      has_summary: whether a noisy summary of the ballots was released.
      other_teachers: as in `recognition_words`.
    """
    summary, planned = facts.summary, len(facts.summary["blocks"])
    answers = [block.labels for block in blocks if block.labels.ndim == 2 and block.labels.size]
    noisy = "A noisy summary of the ballots is released: `votes-summary/summary.json`."
    released = section(
        "What was released",
        f"{capital(rule_words(summary))}. {len(blocks)} of {planned} blocks are released.",
        noisy if has_summary else None,
        *(f"{block.file}: {block.note}" for block in blocks if block.note),
        _blocks_table(blocks) if blocks else None,
        answer_rates_table(names, np.concatenate(answers)) if answers else None,
    )
    return run_report(
        facts,
        promised_by=certified_votes(summary),
        spent=spent_on_votes(summary),
        sections=(released,),
        uncovered=(
            "queries and their released labels are not protected",
            "how the teachers were trained, and that no record reached two of them, is what "
            "whoever made the ballots says",
            *recognition_words(other_teachers),
            *not_of_votes(summary),
        ),
        cards=(
            (f"{len(blocks)} of {planned}", "blocks released", "of those that are paid for"),
            (f"{sum(block.queries for block in blocks):,}", "queries answered", "at most"),
        ),
    )


def certified_votes(summary: Mapping[str, Any]) -> tuple[Block, ...]:
    """Who computed what votes cost, and what changes between two worlds."""
    bound = VOTES[Accountant(summary["accountant"])]
    return (
        f"What all queries cost whatever the votes are, by {bound.method}, which keeps the "
        f"promise: {summary['epsilon']:.4f}; by another program, for information: "
        f"{summary['epsilon_oracle']:.4f}.",
        f"{capital(_said(summary)['ballot'])}.",
    )


def spent_on_votes(summary: Mapping[str, Any]) -> tuple[Block, ...]:
    """What an account costs, all queries that it may ever answer included."""
    every = ("all queries, whatever the votes are", summary["epsilon"])
    return spent_bars([every], summary), vote_cost_table(summary)


def not_of_votes(summary: Mapping[str, Any]) -> list[str]:
    """What no promise about votes speaks of."""
    said = _said(summary)
    keys = ("partitions", "other_accounts", "student", "times", "budgets", "consensus")
    return [said[key] for key in keys if key in said]


def _said(summary: Mapping[str, Any]) -> dict[str, Any]:
    return vote_statements(
        near=summary.get("near"),
        unit=Unit(summary["unit"]),
        budgets=bool(summary.get("budgets")),
        consensus=bool(summary.get("consensus")),
    )


def _blocks_table(blocks: Sequence[ReleasedBlock]) -> Table:
    rows = (
        {
            "file": block.file,
            "queries": f"{block.queries:,}",
            "answered": percent(Released(block.labels).answered),
        }
        for block in blocks
    )
    return table("Released blocks", rows)
