"""Tables of what teachers tell and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpal.reports.commands import TRUSTED
from dpal.reports.summary import Table, promise
from dpal.voting.release import UNANSWERED, Released

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


def account_report(
    summary: Mapping[str, Any],
    blocks: Sequence[ReleasedBlock],
    *,
    names: Sequence[str],
    has_summary: bool,
    other_teachers: Mapping[str, str],
    certificate: str,
) -> str:
    """Writes the report of an account as Markdown, from what was released alone.

    Args:
      summary: of the certified plan.
      blocks: that were released.
      names: of the labels; empty where there are none.
      has_summary: whether a noisy summary of the ballots was released.
      other_teachers: as in `recognition_words`.
      certificate: digest of the certificate.
    """
    rule = rule_words(summary)
    tables = [cost_table(summary)]
    if blocks:
        tables.append(_blocks_table(blocks))
    answers = [block.labels for block in blocks if block.labels.ndim == 2 and block.labels.size]
    if answers:
        tables.append(released_table(names, np.concatenate(answers)))
    parts = [
        f"# Account of teachers {summary['name']}",
        f"Promised: {promise(summary)}. What all queries cost whatever the votes are: "
        f"{summary['epsilon']:.4f}, by another program {summary['epsilon_oracle']:.4f}.",
        f"{rule[0].upper()}{rule[1:]}. {len(blocks)} of {len(summary['blocks'])} blocks are "
        "released.",
    ]
    if has_summary:
        parts.append("A noisy summary of the ballots is released: `votes-summary/summary.json`.")
    parts += [f"{block.file}: {block.note}" for block in blocks if block.note]
    for table in tables:
        parts += [f"## {table.title}", table.markdown()]
    parts += [
        "## What this does not protect",
        "Queries and their released labels. How the teachers were trained, and that no record "
        "reached two of them, is what whoever made the ballots says.",
        *recognition_words(other_teachers),
        f"Plan: `{summary['plan_digest']}`. Certificate: `certificate.json`, digest "
        f"`{certificate}`; who signed it stands in `certificate.dsse.json`. Check it on any "
        f"machine: `dpal verify certificate.json --ledger LEDGER --key KEY`. {TRUSTED}",
    ]
    return "\n\n".join(parts) + "\n"


def _blocks_table(blocks: Sequence[ReleasedBlock]) -> Table:
    rows = [
        (block.file, f"{block.queries:,}", f"{Released(block.labels).answered:.1%}")
        for block in blocks
    ]
    return Table("Released blocks", ("file", "queries", "answered"), tuple(rows))
