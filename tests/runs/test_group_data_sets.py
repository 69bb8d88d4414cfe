"""Campaigns on a registered data set that protect its persons with all their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.runtime import RuntimeConfig
from dpal.data.labeling_state import (
    EXCLUDED,
    cohort_column,
    group_column,
    labels_of,
    read_retired,
    read_selection,
    write_carried,
    write_merged,
    write_start,
)
from dpal.data.sources import Role, open_source
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit
from dpal.planning.plan_doubts import plan_doubts
from dpal.privacy import Adjacency, Unit
from dpal.runs.manage_data_sets import add_block, register_data_set
from dpal.runs.prepare_campaign import prepare
from dpal.training.dp_sgd import PrivateGradient
from tests.conftest import having, nothing_released, write_blobs

LEDGER = Path("artifacts/ledger.sqlite")
PERSONS = 400
MODES: dict[str, dict[str, Any]] = {
    "hidden": {"privacy": {"selection": "hidden"}, "schedule__queries": [100]},
    "visible": {"privacy": {"selection": "visible"}},
}


def written(file: str, persons: list[str], **about: Any) -> Path:
    path = write_blobs(Path(file), len(persons), **about)
    table = pq.read_table(path)
    pq.write_table(table.append_column("person", pa.array(persons)), path)
    return path


def register(group: str | None = "person", epsilon: float = 30.0) -> None:
    limit = Limit(
        filter=RenyiFilter.fitted(epsilon, 1e-4),
        adjacency=Adjacency.ZERO_OUT,
        unit=Unit.RECORD if group is None else Unit.GROUP,
        group_column=group,
    )
    register_data_set("clinic", limit, [Path("pool.parquet")], RuntimeConfig())


@pytest.fixture
def clinic(workplace: Path) -> Path:
    """400 persons of one to five records each, none side by side."""
    owners = np.concatenate([np.arange(PERSONS), np.arange(800) % 200 + 100])
    names = [f"person-{owner}" for owner in np.random.default_rng(3).permutation(owners)]
    written("pool.parquet", names, seed=1)
    return workplace


def settings(mode: str = "visible", *, epsilon: float = 10.0, **more: Any) -> dict[str, Any]:
    values = {"data__dataset": "clinic", **MODES[mode], **more}
    privacy = {"delta": 1e-5, "epsilon": epsilon, "unit": "group", **values["privacy"]}
    return {**values, "privacy": privacy}


def owners(*files: str) -> dict[str, str]:
    tables = [pq.read_table(file) for file in files or ("pool.parquet",)]
    return {
        name: person
        for table in tables
        for name, person in zip(
            table["id"].to_pylist(), table["person"].to_pylist(), strict=True
        )
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_whole_persons_of_a_data_set_are_labeled_and_trained_on(clinic, small, mode, monkeypatch):
    """Of two blocks; a record with a content of the other block takes part in nothing."""
    register()
    # A new person, one of whom all is new, and one with a copy of what another block has.
    written("march.parquet", ["m-1", "m-1", "m-2", "m-2", "m-3"] * 40, seed=9, prefix="n")
    add_block("clinic", [Path("march.parquet")], RuntimeConfig())
    march, pool = pq.read_table("march.parquet"), pq.read_table("pool.parquet")
    copied = march["features"].to_pylist()
    copied[1] = pool["features"].to_pylist()[7]
    kind = march.schema.field("features").type
    march = march.set_column(
        march.schema.get_field_index("features"), "features", pa.array(copied, kind)
    )
    pq.write_table(march, "march.parquet")
    sizes: list[int] = []
    real = PrivateGradient.clipped_sum

    def watched(self, inputs, labels, of=None):
        sizes.extend([] if of is None else of.tolist())
        return real(self, inputs, labels, of)

    monkeypatch.setattr(PrivateGradient, "clipped_sum", watched)
    both = ["pool.parquet", "march.parquet"]
    folder = dpal.run(small(**settings(mode, data__pool=both, schedule__group_records=3)))
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    assert max(sizes) == 3
    plan = folder.read_record()["plan"]
    assert plan["groups"] == {"column": "person", "records": 3, "labels": None}
    assert [(share["block"], share["size"]) for share in plan["blocks"]] == [(0, PERSONS), (1, 3)]
    whose, groups = owners(*both), np.asarray(group_column(folder.start))
    disputed = march["id"].to_pylist()[1]
    names = list(whose)
    (row,) = (row for row, name in enumerate(names) if name == disputed)
    assert groups[row] == -1
    labeled = labels_of(folder.phase(len(folder.finished_phases()) - 1).pool)
    met = {whose[name] for name in labeled}
    assert set(labeled) == {name for name in whose if whose[name] in met} - {disputed}
    assert len(labeled) > len(met) + 50
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert certificate["promise"]["unit"] == "group" and certificate["pool"]["size"] == PERSONS + 3
    assert any("which group" in said for said in certificate["exceptions"])
    assert "hich group" in folder.ledger_page.read_text(encoding="utf-8")


def test_who_asks_for_nothing_else_has_one_record_of_each(clinic, small):
    register()
    privacy = {"selection": "visible", "delta": 1e-5, "epsilon": 10}
    config = small(data__dataset="clinic", schedule__queries=[], privacy=privacy)
    folder = dpal.run(config)
    assert folder.read_record()["plan"]["groups"] is None
    state = cohort_column(folder.phase(0).pool)
    assert (state == EXCLUDED).sum() == 1200 - PERSONS
    page = folder.ledger_page.read_text(encoding="utf-8")
    assert "hich group" not in page
    (said,) = [one for one in plan_doubts(prepare(config).plan, weights=1) if "groups" in one]
    assert "privacy.unit" in said


@pytest.mark.slow
def test_a_later_campaign_carries_the_labels_of_whole_persons(clinic, small):
    register()
    first = dpal.run(small(**settings(epsilon=4, schedule__queries=[])))
    bought = labels_of(first.phase(0).pool)
    second = dpal.run(
        small(**settings(epsilon=4, schedule__queries=[40], name="second", start_from="small"))
    )
    assert labels_of(second.phase(0).pool) == bought
    assert not any_failed(dpal.verify(second, ledger=LEDGER))
    whose, after = owners(), labels_of(second.phase(1).pool)
    met = {whose[name] for name in after}
    assert len(met) > len({whose[name] for name in bought})
    assert set(after) == {name for name, person in whose.items() if person in met}


@pytest.mark.parametrize(
    ("labeled", "chosen", "retired"),
    [
        ([0, 2], [0, 2], []),
        ([2], [2], [0]),  # the first was skipped by those who label: the group joins without it
        ([4, 0, 3], [0, 3, 4], [1]),
        ([5], [], []),  # it takes part no more
        ([], [], []),
    ],
)
def test_a_group_is_carried_by_any_of_its_records(tmp_path, labeled, chosen, retired):
    """Rows are of the groups 0, 1, 0, 3, 1 and nobody."""
    path = write_blobs(tmp_path / "pool.parquet", 6, seed=1)
    source = open_source(path, Role.POOL, label_column="label")
    ids = pq.read_table(path)["id"].to_pylist()
    before, start, after = (tmp_path / f"{name}.parquet" for name in ("before", "start", "after"))
    write_start(source, tmp_path / "earlier.parquet")
    labels = {ids[row]: 1 for row in labeled}
    write_merged(tmp_path / "earlier.parquet", labels, 0, before)
    write_start(source, start, groups=np.array([0, 1, 0, 3, 1, -1]))
    write_carried(before, start, tmp_path / "carried.parquet")
    assert read_selection(tmp_path / "carried.parquet") == [ids[row] for row in chosen]
    assert read_retired(tmp_path / "carried.parquet") == [ids[row] for row in retired]
    write_merged(
        start,
        dict.fromkeys(read_selection(tmp_path / "carried.parquet"), 1),
        0,
        after,
        retired=read_retired(tmp_path / "carried.parquet"),
    )
    assert set(labels_of(after)) == {ids[row] for row in chosen}


def test_a_group_that_was_skipped_leaves_the_pool_where_ids_are_seen(tmp_path):
    """Rows are of the groups 0, 1, 0, 3, 1: nobody labeled any of group 1, and one of group 0."""
    path = write_blobs(tmp_path / "pool.parquet", 5, seed=1)
    source = open_source(path, Role.POOL, label_column="label")
    ids = pq.read_table(path)["id"].to_pylist()
    before, start, carried = (tmp_path / name for name in ("before", "start", "carried"))
    groups = np.array([0, 1, 0, 3, 1])
    write_start(source, start, groups=groups)
    write_merged(start, {ids[0]: 1}, 0, before, retired=[ids[1], ids[2], ids[4]])
    write_carried(before, start, carried, ids_are_seen=True)
    assert (read_selection(carried), read_retired(carried)) == ([ids[0]], [ids[1]])
    write_carried(before, start, carried)  # hidden: it may be asked about again
    assert (read_selection(carried), read_retired(carried)) == ([ids[0]], [])


def test_a_data_set_of_single_records_has_no_groups(clinic, small):
    register(group=None)
    with pytest.raises(ConfigError, check=having(setting="privacy.unit")) as refused:
        dpal.plan(small(**settings()))
    assert nothing_released(refused.value)
    assert not CampaignFolder(Path("artifacts/small")).start.exists()
