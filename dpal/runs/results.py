"""What a finished run has to show for what it spent, from its files."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.files.artifacts import CampaignFolder
from dpal.reports.report import Table

Shown = Sequence[Table | str]  # tables and sentences, in reading order


def results(folder: CampaignFolder) -> Shown:
    """What any run has: its promise, and what its plan spends of it."""
    summary = folder.read_record()["plan"]
    rows = (
        ("promised", f"{summary['target_epsilon']:g}"),
        ("spent", f"{summary['epsilon']:.4f}"),
        ("second opinion", f"{summary['epsilon_oracle']:.4f}"),
    )
    return [Table("Epsilon", ("", "epsilon"), rows)]
