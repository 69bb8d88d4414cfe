"""What MLflow is told of the ledger: the history of a campaign and its data set."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from dpal.ledger.data_set_history import history, parts_of
from dpal.ledger.datasets import data_set
from dpal.ledger.entries_table import ledger_table
from dpal.reports.figures.datasets import dataset_figure
from dpal.runs.campaign_run import Campaign

_UNREADABLE = ["body", "previous"]  # for machines; the exports have them


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
