"""What new records of a data set lost before: their block counts it, or they are refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpal.data.sources import Source
from dpal.ledger.data_set_accounts import data_set
from dpal.ledger.data_set_registry import EarlierOn
from dpal.ledger.entries import Entry
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.past_campaigns_of_records import PastCampaigns
from dpal.runs.protected_validation_overlap import measured_on, require_unmeasured
from dpal.runs.unregistered_runs import Runs, require_known, runs_on

Rows = NDArray[np.bool_]


def earlier_on(
    source: Source, store: LedgerStore, artifacts: Path, *, name: str, apart: str | None = None
) -> EarlierOn:
    """What `Registry.add` asks: which runs without a data set some rows of a source were in.

    Args:
      source: with the new records.
      store: the ledger.
      artifacts: folder of the runs.
      name: of the data set.
      apart: why runs of which nothing shows what they were about were about other people.

    Raises:
      DataError: when it is asked, as `lost_before`.
    """
    column = data_set(store.entries(), name).limit.owner_column

    def asked(rows: Rows) -> PastCampaigns:
        return lost_before(
            source, store.entries(), artifacts, owner_column=column, apart=apart, rows=rows
        )

    return asked


def lost_before(
    source: Source,
    entries: Iterable[Entry],
    artifacts: Path,
    *,
    owner_column: str,
    apart: str | None,
    rows: Rows | None = None,
) -> PastCampaigns:
    """Which runs without a data set new records were in.

    Args:
      source: with the new records.
      entries: of the ledger.
      artifacts: folder of the runs.
      owner_column: of the data set: says who is protected.
      apart: as in `earlier_on`.
      rows: (n,) which rows of the source are meant; None for all.

    Raises:
      DataError: a run was measured on one of them as protected validation records; or nothing
        shows what a run was about, and nobody says so.
    """
    entries = list(entries)
    runs = runs_on(source, entries, artifacts, rows=rows)
    measured = measured_on(source, entries, artifacts, owner_column=owner_column, rows=rows)
    require_unmeasured(measured, source)
    unknown = tuple(dict.fromkeys((*runs.unknown, *measured.unknown)))
    require_known(Runs(runs.about, unknown), apart)
    said = {"campaigns": list(unknown), "reason": apart} if unknown else None
    return PastCampaigns(campaigns=runs.about, apart=said)
