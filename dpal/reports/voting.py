"""Tables of what teachers tell and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.reports.summary import Table
from dpal.voting.release import UNANSWERED

PRIVATE_COLUMNS = ("these votes, exact", "these votes, published bound")
PRIVATE_NOTE = (
    "Figures of these votes are private themselves: they promise nothing to others, they may not "
    "decide how many queries are asked, and the published bound holds in one direction only "
    "(with a confidence check it is an expectation). What is certified holds whatever the votes "
    "are."
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


def rule_words(summary: Mapping[str, Any]) -> str:
    """How queries are answered, in a line."""
    limit = "" if summary["limit"] is None else f", limit {summary['limit']:g}"
    return (
        f"{summary['mechanism']} voting of {summary['teachers']} teachers on {summary['labels']} "
        f"labels, sigma {summary['sigma']:g}{limit}"
    )


def cost_table(summary: Mapping[str, Any]) -> Table:
    """What an account may tell, and what that costs whatever the votes are."""
    rows = [
        ("queries", f"{summary['queries']:,} in {len(summary['blocks'])} blocks"),
        ("accountant", str(summary["accountant"])),
        ("epsilon", f"{summary['epsilon']:.4f} of {summary['target_epsilon']:g} promised"),
        ("second opinion", f"{summary['epsilon_oracle']:.4f}"),
        ("delta", f"{summary['delta']:.3g}"),
        ("unanimous votes turned", f"{summary['unanimous_turned']:.2%} by noise alone"),
        ("adjacency, unit", f"{summary['adjacency']} (one ballot replaced), {summary['unit']}"),
    ]
    return Table("Votes", ("", "account"), tuple(rows))


def modes_table(rows: Sequence[tuple[str, float, str]]) -> Table:
    """Costs of the same queries, counted in several ways."""
    return Table(
        "Ways to count the same queries",
        ("mode", "epsilon", "what it promises"),
        tuple((name, f"{epsilon:.4f}", claim) for name, epsilon, claim in rows),
    )


def sweep_table(key: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Votes over the values of one setting."""
    private = all("exact" in row for row in rows)
    columns = [key, "epsilon of all", "queries that fit", "unanimous votes turned"]
    columns += ["these answers turned", *PRIVATE_COLUMNS] if private else []
    cells = []
    for row in rows:
        cell = [
            f"{row['value']:g}",
            f"{row['epsilon']:.4f}",
            f"{row['fit']:,}",
            f"{row['unanimous']:.1%}",
        ]
        if private:
            turned = "-" if row["turned"] is None else f"{row['turned']:.1%}"
            cell += [turned, f"{row['exact']:.4f}", f"{row['papernot']:.4f}"]
        cells.append(tuple(cell))
    return Table(f"Votes over {key}", tuple(columns), tuple(cells))


def advice_table(options: Sequence[Mapping[str, Any]]) -> Table:
    """Mechanisms, the one to choose first."""
    rows = [
        (
            str(one["mechanism"]),
            "-" if one["limit"] is None else f"{one['limit']:.3g}",
            f"{one['sigma']:.3g}",
            f"{one['queries']:,}",
            str(one["why"]),
        )
        for one in options
    ]
    return Table("Mechanisms", ("mechanism", "limit", "sigma", "queries", "why"), tuple(rows))


def released_table(names: Sequence[str], labels: NDArray[np.integer]) -> Table:
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
        rows.append((name, f"{share:.1%}", f"{said.mean():.1%}" if len(said) else "-"))
    return Table("Released labels", ("label", "answered", "yes"), tuple(rows))
