"""Protected validation sets beside registered data sets: whole groups, and nobody in two sums."""

from __future__ import annotations

import copy
import shutil
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.events import VALIDATION
from dpal.accounting.renyi_filter import NOTHING, RenyiFilter
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.kinds.campaign import CAMPAIGN, _unpaid_figures
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.runtime import RuntimeConfig
from dpal.errors import ConfigError, DataError, LedgerError, RecordsRegistered
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit, data_set
from dpal.ledger.data_set_registry import Added
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_from
from dpal.models.build_model import build_model
from dpal.privacy import Adjacency, Unit
from dpal.runs import phase_measuring
from dpal.runs.manage_data_sets import add_block, register_data_set
from dpal.runs.prepare_campaign import hold_budget, prepare
from dpal.training.evaluation import probabilities
from dpal.training.noisy_metrics import confusion_counts
from tests.conftest import PUBLIC, WIDTH, having, nothing_released, write_blobs
from tests.variants import quick_and_slow

LEDGER = Path("artifacts/ledger.sqlite")
PERSONS, HELD_OUT = 450, 90
ADJACENCIES = (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
MOVED = list(product((1, 2), ADJACENCIES))
FARTHEST = [(1, Adjacency.REPLACE_ONE), (2, Adjacency.ZERO_OUT)]
SETTINGS: dict[str, Any] = {
    "data__dataset": "clinic",
    "schedule__queries": [],
    "privacy": {"selection": "visible", "delta": 1e-5, "epsilon": 6},
    "acquisition": "random",
    "validation": {"protected": True, "epsilon": 2.0},
}
SMALLER = {"selection": "visible", "delta": 1e-5, "epsilon": 2}


def settings(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SETTINGS), **changes}


def of_persons(file: str, names: list[str]) -> None:
    table = pq.read_table(file)
    if "person" in table.column_names:
        table = table.drop_columns(["person"])
    pq.write_table(table.append_column("person", pa.array(names)), file)


def register(
    group: str | None = "person",
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    files: tuple[str, ...] = ("pool.parquet",),
    **more: Any,
) -> Added:
    limit = Limit(
        filter=RenyiFilter.fitted(20.0, 1e-4),
        adjacency=adjacency,
        unit=Unit.RECORD if group is None else Unit.GROUP,
        group_column=group,
    )
    return register_data_set("clinic", limit, [Path(one) for one in files], RuntimeConfig(), **more)


def add(*files: str, **more: Any) -> Added:
    return add_block("clinic", [Path(one) for one in files], RuntimeConfig(), **more)


def blocks() -> int:
    store = LedgerStore(LEDGER)
    found = len(data_set(store.entries(), "clinic").blocks)
    store.close()
    return found


@pytest.fixture
def held_out(workplace: Path) -> Path:
    """The small pool, of persons, and a validation set of other ones with one to five records."""
    of_persons("pool.parquet", [f"person-{row % PERSONS}" for row in range(600)])
    owners = np.concatenate([np.arange(HELD_OUT), np.arange(210) % 53])
    of_persons("validation.parquet", [f"held-out-{owner}" for owner in owners])
    return workplace


@pytest.mark.parametrize("most", quick_and_slow([2], [1, 2]))
def test_groups_of_a_validation_set_are_charged_beside_those_of_the_data_set(held_out, small, most):
    register()
    protected = {"protected": True, "epsilon": 2.0, "group_records": most}
    folder = dpal.run(small(**settings(validation=protected)))
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    sizes = np.unique(pq.read_table("validation.parquet")["person"], return_counts=True)[1]
    told = folder.read_record()["plan"]["validation"]
    kept = int(np.minimum(sizes, most).sum())
    assert (told["records"], told["groups"], told["group_records"]) == (kept, HELD_OUT, most)
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    cohort = certificate["cohorts"][-1]
    assert (cohort["cohort"], cohort["planned_size"]) == (VALIDATION, HELD_OUT)
    assert {event.get("moved", 1) for event in cohort["events"]} == {most**2 + (most > 1)}
    assert 1.99 < cohort["epsilon_pld"] <= 2.0
    (share,) = folder.read_record()["plan"]["blocks"]
    assert (share["size"], share["participation"]) == (PERSONS, 1.0)
    evidence = CAMPAIGN.read(certificate)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    plan = copy.deepcopy(dict(evidence.plan))
    assert list(_unpaid_figures(plan, held)) == []
    del plan["spec"]["validation"]["groups"]
    assert len(list(_unpaid_figures(plan, held))) >= 1


@pytest.mark.parametrize(("most", "adjacency"), quick_and_slow(FARTHEST, MOVED))
def test_all_that_a_person_can_be_moves_no_more_than_is_paid_for(held_out, small, adjacency, most):
    """Three persons of one, two and three records: the last one is everything that there is."""
    contents = list(product((-40.0, 0.0, 40.0), range(3)))
    rows = np.random.default_rng(5).normal(size=(6, WIDTH)).astype(np.float32)
    table = pq.read_table("validation.parquet").slice(0, 6)

    def write(third: tuple[tuple[float, int], ...]) -> None:
        features, labels = rows.copy(), [0, 1, 2, 0, 1, 2]
        for row, (value, label) in zip((1, 3, 5), third, strict=True):
            features[row], labels[row] = 0.0, label
            features[row, label] = value
        flat = pa.array(features.ravel())
        changed = table.set_column(
            table.schema.get_field_index("features"),
            "features",
            pa.FixedSizeListArray.from_arrays(flat, WIDTH),
        ).set_column(table.schema.get_field_index("label"), "label", pa.array(labels))
        pq.write_table(changed, "validation.parquet")
        of_persons("validation.parquet", ["a", "c", "b", "c", "b", "c"])

    write(((0.0, 0), (0.0, 1), (0.0, 2)))
    register(adjacency=adjacency)
    campaign = prepare(
        small(
            **settings(
                validation={"protected": True, "epsilon": 2.0, "group_records": most},
                privacy={**SETTINGS["privacy"], "adjacency": adjacency.value},
            )
        )
    )
    campaign = replace(campaign, validation=replace(campaign.validation, known=()))  # it changes
    validation, event = campaign.plan.spec.validation, campaign.plan.figures
    assert validation is not None and event is not None
    assert (validation.groups, validation.records) == (3, {1: 3, 2: 5}[most])
    model = build_model(campaign.plan.spec.model)

    def counted(*, without_third: bool = False) -> np.ndarray:
        measured = phase_measuring._records(campaign, validation)
        assert measured.owners is not None
        kept = measured.owners != 1 if without_third else np.full(measured.owners.size, True)
        guesses = probabilities(model, measured.inputs, physical_batch=64)
        return confusion_counts(guesses[kept], measured.labels.numpy()[kept]).ravel()

    worlds = []
    for third in product(contents, repeat=most):
        write((*third, *[(40.0, 2)] * (3 - most)))
        worlds.append(counted())
    # Records beyond the cap are never measured, whatever they are.
    write((*[(40.0, 0)] * most, *[(-40.0, 1)] * (3 - most)))
    capped = counted()
    write((*[(40.0, 0)] * most, *[(40.0, 2)] * (3 - most)))
    assert (counted() == capped).all()
    blanked = counted(without_third=True)
    others = worlds if adjacency is Adjacency.REPLACE_ONE else [blanked]
    farthest = max(int(((one - other) ** 2).sum()) for one in worlds for other in others)
    spread = int(most > 1)  # moves by 1 at most (tests/training/test_measured_groups.py)
    assert farthest == event.counts_moved - spread


def test_a_group_in_both_files_is_refused(held_out, small):
    register()
    names = pq.read_table("validation.parquet")["person"].to_pylist()
    of_persons("validation.parquet", ["person-7", *names[1:]])
    with pytest.raises(RecordsRegistered, check=nothing_released):
        dpal.plan(small(**settings()))


def test_a_group_of_the_data_set_that_is_not_in_the_pool_is_refused(held_out, small):
    write_blobs(held_out / "march.parquet", 50, seed=7, prefix="n")
    of_persons("march.parquet", [f"march-{row}" for row in range(50)])
    register(files=("pool.parquet", "march.parquet"))
    names = pq.read_table("validation.parquet")["person"].to_pylist()
    of_persons("validation.parquet", ["march-7", *names[1:]])
    with pytest.raises(RecordsRegistered, check=nothing_released):
        dpal.plan(small(**settings()))


def test_a_validation_set_that_does_not_say_whose_it_is_is_refused(held_out, small):
    register()
    table = pq.read_table("validation.parquet").drop_columns(["person"])
    pq.write_table(table, "validation.parquet")
    with pytest.raises(DataError, check=nothing_released) as refused:
        dpal.plan(small(**settings()))
    assert "'person'" in str(refused.value)


def test_records_of_groups_are_asked_for_where_there_are_none(held_out, small):
    register(group=None)
    protected = {"protected": True, "epsilon": 2.0, "group_records": 2}
    with pytest.raises(ConfigError, check=having(setting="validation.group_records")) as refused:
        dpal.plan(small(**settings(validation=protected)))
    assert nothing_released(refused.value)


def joined() -> None:
    """New records: mostly of others, and one that stands in the validation set."""
    write_blobs(Path("march.parquet"), 200, seed=9, prefix="n")
    march = pq.read_table("march.parquet")
    first = pq.read_table("validation.parquet").slice(0, 1)
    if "person" in first.column_names:
        march = march.append_column("person", pa.array([f"march-{row}" for row in range(200)]))
    pq.write_table(pa.concat_tables([march, first.select(march.column_names)]), "march.parquet")


def test_groups_that_were_measured_are_found_in_a_data_set_without_groups(held_out, small):
    privacy = {"selection": "visible", "epsilon": 20, "unit": "group"}
    protected = {"protected": True, "epsilon": 10.0}
    changes = {"privacy": privacy, "data__group_column": "person", "validation": protected}
    dpal.run(small(acquisition="random", schedule__queries=[], **changes))
    write_blobs(held_out / "march.parquet", 200, seed=9, prefix="n")
    of_persons("march.parquet", ["held-out-3", *[f"march-{row}" for row in range(199)]])
    with pytest.raises(DataError, check=nothing_released):
        register(group=None, files=("march.parquet",))
    of_persons("march.parquet", [f"march-{row}" for row in range(200)])
    assert register(group=None, files=("march.parquet",)).new == 200


@pytest.mark.parametrize("group", quick_and_slow(["person"], [None, "person"]))
def test_who_was_measured_does_not_join_the_data_set(held_out, small, group):
    register(group=group)
    dpal.run(small(**settings()))
    joined()
    if group is not None:
        # The same person with another record: known by name alone.
        write_blobs(held_out / "other.parquet", 201, seed=10, prefix="o")
        table = pq.read_table("other.parquet")
        whose = pq.read_table("march.parquet")["person"]
        pq.write_table(table.append_column("person", whose), "march.parquet")
    with pytest.raises(DataError, check=nothing_released) as refused:
        add("march.parquet")
    assert "small" in str(refused.value) and blocks() == 1
    pq.write_table(pq.read_table("march.parquet").slice(0, 200), "march.parquet")
    assert add("march.parquet").new == 200


def test_who_was_measured_without_a_data_set_is_in_none_later(workplace, small):
    protected = {"protected": True, "epsilon": 2.0}
    dpal.run(small(validation=protected, acquisition="random", schedule__queries=[]))
    joined()
    with pytest.raises(DataError, check=nothing_released) as refused:
        register(group=None, files=("march.parquet",))
    assert "small" in str(refused.value)
    assert not any(entry.kind is EntryKind.REGISTER for entry in LedgerStore(LEDGER).entries())


def test_nothing_shows_who_was_measured(held_out, small):
    register()
    dpal.run(small(**settings()))
    joined()
    shutil.move("validation.parquet", "aside.parquet")
    with pytest.raises(DataError) as refused:
        add("march.parquet")
    assert "--apart" in str(refused.value) and blocks() == 1
    assert add("march.parquet", apart="other people, it was thought").block == 1
    # It was not so: nobody's figures and training are added up, and so nothing starts.
    shutil.move("aside.parquet", "validation.parquet")
    write_blobs(held_out / "others.parquet", 300, seed=11, prefix="w")
    of_persons("others.parquet", [f"other-{row}" for row in range(300)])
    again = settings(
        name="second",
        start_from="small",
        data__pool=["pool.parquet", "march.parquet"],
        data__validation="others.parquet",
        privacy=SMALLER,
    )
    with pytest.raises(DataError, check=nothing_released) as stopped:
        dpal.run(small(**again))
    assert "small" in str(stopped.value)
    assert not CampaignFolder(Path("artifacts/second")).start.exists()
    pq.write_table(pq.read_table("march.parquet").slice(0, 200), "march.parquet")
    assert dpal.plan(small(**again)).summary()["pool_size"] == PERSONS + 200


def test_a_campaign_goes_on_with_the_records_that_it_began_with(held_out, small):
    register()
    config = small(**settings())
    campaign = prepare(config)
    with lock_folder(campaign.folder.root):
        hold_budget(campaign)
    write_blobs(held_out / "validation.parquet", 300, seed=12, prefix="v")
    owners = np.concatenate([np.arange(HELD_OUT), np.arange(210) % 53])
    of_persons("validation.parquet", [f"held-out-{owner}" for owner in owners])
    with pytest.raises(DataError, check=nothing_released):
        dpal.run(config)


def test_records_that_join_while_a_campaign_is_planned(held_out, small):
    register()
    campaign = prepare(small(**settings()))
    joined()
    add("march.parquet")
    with lock_folder(campaign.folder.root), pytest.raises(LedgerError):
        hold_budget(campaign)


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "person"])
def test_figures_take_nothing_of_a_blocks_share(held_out, small, group, monkeypatch):
    """However dear they are: the block holds, and is charged in the end, the same without them."""
    taken = []
    for name, validation in (
        ("public", dict(PUBLIC)),
        ("protected", {"protected": True, "epsilon": 6.0}),
    ):
        root = held_out / name
        root.mkdir()
        for file in ("pool.parquet", "validation.parquet"):
            shutil.copy(held_out / file, root / file)
        monkeypatch.chdir(root)
        register(group=group)
        folder = dpal.run(small(**settings(validation=validation)))
        (share,) = folder.read_record()["plan"]["blocks"]
        with closing(LedgerStore(LEDGER)) as store:
            (block,) = data_set(store.entries(), "clinic").blocks
        measured = [one for one in dpal.account(folder).cohorts if one.cohort == VALIDATION]
        assert [one.epsilon_pld > 5.9 for one in measured] == [True] * (name == "protected")
        taken.append((share, block.taken, block.sole))
    assert taken[0] == taken[1]
    assert taken[0][1] != NOTHING
