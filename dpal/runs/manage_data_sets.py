"""A data owner's part: registering data sets, adding records, changing limits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpal.config.campaign import RuntimeConfig
from dpal.data.find_record_blocks import count_distinct_owners
from dpal.data.known_records import MarkKey
from dpal.data.sources import Role, open_source
from dpal.files.artifacts import CampaignFolder
from dpal.files.stored_objects import Place
from dpal.ledger.data_set_accounts import DataSet, Limit, data_sets, register_body
from dpal.ledger.data_set_registry import Added
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs.count_past_campaigns import earlier_on, lost_before
from dpal.runs.open_ledger import open_ledger, recorded_ledger
from dpal.runs.plan_new_campaign import registry_of


def register_data_set(
    name: str,
    limit: Limit,
    files: Sequence[Place],
    runtime: RuntimeConfig,
    *,
    apart: str | None = None,
) -> Added:
    """Registers a data set and its first block; settings as in `add`."""
    source = open_source(list(files), Role.POOL, label_column="label")
    with closing(open_ledger(runtime)) as store:
        entries, registry = store.entries(), registry_of(runtime.artifacts, store)
        if name in data_sets(entries):  # then `add` asks, where something is new
            registry.register(name, limit)
        else:
            spent = lost_before(
                source, entries, runtime.artifacts, owner_column=limit.owner_column, apart=apart
            )
            registry.register(name, limit, earlier=spent.campaigns)
    return add_block(name, files, runtime, apart=apart)


def add_block(
    name: str,
    files: Sequence[Place],
    runtime: RuntimeConfig,
    *,
    similar: str | None = None,
    apart: str | None = None,
) -> Added:
    """Makes what is new in files a block of a data set, with what was spent on it before.

    Args:
      name: of the data set.
      files: with its records.
      runtime: says where ledger and data sets are.
      similar: why records that look like known ones are other people's; as `Registry.add`.
      apart: why runs whose records cannot be compared any more were about other people.
    """
    source = open_source(list(files), Role.POOL, label_column="label")
    with (
        closing(open_ledger(runtime)) as store,
        tqdm(desc="reading records", unit="rec", disable=None, leave=False) as bar,
    ):
        registry = registry_of(runtime.artifacts, store)
        earlier = earlier_on(source, store, runtime.artifacts, name=name, apart=apart)
        return registry.add(name, source, similar=similar, earlier=earlier, on_rows=bar.update)


def change_limit(name: str, epsilon: float, reason: str, runtime: RuntimeConfig) -> Limit:
    """Records a data owner's new limit."""
    with closing(open_ledger(runtime)) as store:
        return registry_of(runtime.artifacts, store).change_limit(name, epsilon, reason=reason)


def registered(runtime: RuntimeConfig) -> dict[str, DataSet]:
    """All data sets of a ledger, with what is left of them."""
    with closing(open_ledger(runtime, create=False)) as store:
        return data_sets(store.verified())


def count_owners(files: Sequence[Place], group: str | None) -> int:
    """How many owners files hold; decides the default delta.

    Raises:
      DataError: a file cannot be read or has not the column.
    """
    source = open_source(list(files), Role.POOL, label_column="label")
    key = MarkKey(os.urandom(32), owner_column=group or "id")
    return count_distinct_owners(source, key, Path(tempfile.gettempdir()))


def view_of(dataset: DataSet) -> dict[str, Any]:
    """A data set as one JSON object."""
    limit = dataset.limit
    whole = limit.filter.limit.divergence
    return {
        **register_body(dataset.name, limit),
        "blocks": [
            {
                "block": block.block,
                "size": block.size,
                "epsilon_taken": block.epsilon_taken(limit),
                "share_left": block.left(limit).divergence / whole if whole else 0.0,
                "sole": block.sole,
                "campaigns": list(block.campaigns),
                **({"counts_as_spent": block.counts_as_spent} if block.counts_as_spent else {}),
            }
            for block in dataset.blocks
        ],
    }


def end_early(
    folder: CampaignFolder,
    said: Callable[[CampaignFolder, CampaignLedger], Mapping[str, Any]],
) -> None:
    """Ends a campaign before its plan is done; what it did not use flows back.

    Args:
      folder: of the campaign.
      said: what its end says of the model that it releases.
    """
    with lock_folder(folder.root), closing(recorded_ledger(folder)) as store:
        ledger = CampaignLedger(store, folder.name, folder.root)
        ledger.end(said(folder, ledger))
