"""What a finished run has to show for what it spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.reports.report import Table

Shown = Sequence[Table | str]  # tables and sentences, in reading order


def epsilon_table(summary: Mapping[str, Any]) -> Table:
    """What any run has: its promise, and what its plan spends of it."""
    rows = (
        ("promised", f"{summary['target_epsilon']:g}"),
        ("spent", f"{summary['epsilon']:.4f}"),
        ("second opinion", f"{summary['epsilon_oracle']:.4f}"),
    )
    return Table("Epsilon", ("", "epsilon"), rows)
