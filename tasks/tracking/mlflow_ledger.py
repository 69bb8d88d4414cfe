"""What MLflow is told of the ledger: what was spent and is left, and the whole history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dpal.accounting.cohort_spending import Accountant
from dpal.accounting.events import NEVER_SELECTED
from dpal.ledger.campaign_account import campaign_account, epsilons_so_far
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_history import history, parts_of
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.export_table import ledger_table
from dpal.reports.ledger_tables import blocks_table, short_table
from dpal.reports.plan_and_phase_tables import any_path, cohort_words
from dpal.reports.plots.datasets import dataset_figure
from dpal.reports.plots.epsilon_by_cohort import spent_figure
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.report import Table
from dpal.runs.campaign import Campaign
from dpal.runs.run import Run

SPENT = "spent.json"
_MOST_ROWS = 20
_UNREADABLE = ["body", "previous"]  # for machines; the exports have them


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a run has spent by now, for a glance.

    Attributes:
      epsilon: that any record may have lost.
      promised: epsilon.
      table: a row a release.
      blocks: what all runs take of its data set's blocks; None where there is none.
      figure: every cohort against the promise.
    """

    epsilon: float
    promised: float
    table: Table
    blocks: Table | None
    figure: Figure

    @property
    def left(self) -> float:
        """What of the promise is left."""
        return max(0.0, self.promised - self.epsilon)

    @property
    def words(self) -> str:
        """In a tag's length."""
        return f"{self.epsilon:.4f} of {self.promised:g}, {self.left:.4f} left"

    @property
    def line(self) -> str:
        """The first line of a description: MLflow folds what comes below a few of them."""
        return f"**Spent:** epsilon {self.words}."

    def in_markdown(self) -> str:
        """Both tables, for a description."""
        rows, told = self.table.rows, list[str]()
        if len(rows) > _MOST_ROWS:
            told.append(f"The newest {_MOST_ROWS} of {len(rows)} releases; all are in `{SPENT}`.")
        shown = Table(self.table.title, self.table.columns, rows[-_MOST_ROWS:])
        told += [block_in_markdown(shown)] if rows else []
        if self.blocks is not None:
            told += [f"**{self.blocks.title}**", block_in_markdown(self.blocks)]
        return "\n\n".join(told)

    def as_frame(self) -> pd.DataFrame:
        """The table, as MLflow keeps tables."""
        return pd.DataFrame(list(self.table.rows), columns=list(self.table.columns))


def spent_by(run: Run[Any], planned: Mapping[str, float] | None = None) -> Spent | None:
    """What a run has spent by now; None where it holds nothing.

    Args:
      run: of any kind.
      planned: epsilon of each cohort at the end of its plan, in the words of reports.
    """
    entries = run.known_entries()
    if not _holds(entries, run.name):
        return None
    account = campaign_account(entries, run.name)
    blocks = None
    if run.dataset is not None:
        blocks = blocks_table(data_set(entries, run.dataset))
    return Spent(
        epsilon=account.epsilon,
        promised=account.target.epsilon,
        table=short_table(account, epsilons_so_far(account)),
        blocks=blocks,
        figure=spent_figure(account, planned or {}),
    )


def planned_epsilons(summary: Mapping[str, Any]) -> dict[str, float]:
    """What each cohort of a campaign will have lost at the end of its plan."""
    key = f"epsilon_{summary['accountant']}"
    planned = {
        cohort_words(str(cohort["cohort"])): float(cohort[key]) for cohort in summary["cohorts"]
    }
    if summary["accountant"] == Accountant.PLD.value:
        planned[cohort_words(NEVER_SELECTED)] = float(summary["never_selected_epsilon"])
    return {**planned, any_path(summary["unit"]): float(summary[key])}


def _holds(entries: list[Entry], name: str) -> bool:
    return any(entry.kind is EntryKind.HOLD and entry.campaign == name for entry in entries)


def data_tags(campaign: Campaign) -> dict[str, str]:
    """By which a data set's campaigns are found, and what this one starts from."""
    tags = {
        "dpal.dataset": campaign.config.data.dataset,
        "dpal.start_from": campaign.config.start_from,
    }
    return {key: value for key, value in tags.items() if value is not None}


def data_metrics(campaign: Campaign) -> dict[str, float]:
    """The epsilon that all campaigns so far add up to, by block; held ones count in full."""
    name = campaign.config.data.dataset
    if name is None:
        return {}
    with campaign.ledger() as ledger:
        dataset = data_set(ledger.store.of_data_set(name), name)
    return {
        f"dataset_epsilon/block_{account.block}": account.epsilon_taken(dataset.limit)
        for account in dataset.blocks
    }


def data_figure(campaign: Campaign) -> Figure | None:
    """What each campaign takes of each block; None where no data set is registered."""
    name = campaign.config.data.dataset
    if name is None:
        return None
    with campaign.ledger() as ledger:
        entries = ledger.store.of_data_set(name)
    return dataset_figure(data_set(entries, name), parts_of(entries, name))


def ledger_story(campaign: Campaign) -> pd.DataFrame:
    """The entries of all campaigns on its data set, readable; its own where there is none."""
    with campaign.ledger() as ledger:
        entries = ledger.store.entries()
    table = ledger_table(history(entries, campaign.config.name)).drop(columns=_UNREADABLE)
    readable: pd.DataFrame = table.astype(object).where(table.notna(), "")
    return readable
