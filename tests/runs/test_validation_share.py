"""Campaigns that hold a share of their pool out, by a coin for each record or group."""

from __future__ import annotations

import copy
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.events import VALIDATION
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.data import DataConfig
from dpal.config.improvement import PublicConfig
from dpal.config.runtime import RuntimeConfig
from dpal.config.validation import DeclaredValidation
from dpal.data.held_out import HeldOutShare
from dpal.data.readers import raw_batches
from dpal.data.sources import Source
from dpal.errors import ConfigError, DataError, LedgerError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit
from dpal.ledger.ledger_store import LedgerStore
from dpal.planning.explain_campaign import explain_campaign
from dpal.privacy import Adjacency, Unit
from dpal.runs import validation_reuse_warning
from dpal.runs.kinds import parse_any
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.manage_data_sets import register_data_set
from dpal.runs.prepare_campaign import prepare, prepare_campaign
from dpal.runs.prepare_improvement import plan_improvement
from dpal.runs.protected_validation_overlap import measured_on
from tests.conftest import PUBLIC, having, nothing_released, small_values, write_blobs
from tests.flows import improving, voting

LEDGER = Path("artifacts/ledger.sqlite")
SHARE = {"share": 0.3, "epsilon": 2.0}
SETTINGS: dict[str, Any] = {
    "data": {"pool": "pool.parquet"},
    "validation": SHARE,
    "acquisition": "random",
    "schedule__queries": [40],
}
ALONE: dict[str, Any] = {"schedule__queries": []}


def values(**changes: Any) -> dict[str, Any]:
    return small_values(**{**copy.deepcopy(SETTINGS), **changes})


def ids(source: Source) -> list[str]:
    batches = raw_batches(source, ["id"])
    return [name for batch in batches for name in batch.table.column(0).to_pylist()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One finished campaign for many tests, which only look at it."""
    root = tmp_path_factory.mktemp("share")
    write_blobs(root / "pool.parquet", 600, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        dpal.run(parse_config(values()))
    yield root


@pytest.fixture
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignFolder:
    monkeypatch.chdir(place)
    return CampaignFolder(Path("artifacts/small"))


def split_by_hand(column: str = "id") -> None:
    """The pool as two files, by a coin for what a column says."""
    table = pq.read_table("pool.parquet")
    names = table[column].cast(pa.string()).to_pylist()
    held_out = pa.array(HeldOutShare(share=SHARE["share"], column=column).holds_out(names))
    pq.write_table(table.filter(pc.invert(held_out)), "left.parquet")
    pq.write_table(table.filter(held_out), "held-out.parquet")


BY_HAND: dict[str, Any] = {
    "data": {"pool": "left.parquet", "validation": "held-out.parquet"},
    "validation": {"protected": True, "epsilon": SHARE["epsilon"]},
}


@pytest.mark.slow
def test_a_campaign_is_what_it_would_be_on_two_files(folder):
    """Records, epsilons of every cohort, noise: all but the words for it."""
    split_by_hand()
    by_share, by_hand = (
        dpal.plan(parse_config(values(**how))).summary() for how in ({}, BY_HAND)
    )  # fmt: skip
    assert by_share["validation"].pop("share") == 0.3
    assert by_share.pop("plan_digest") != by_hand.pop("plan_digest"), "the plan says which"
    assert by_share == by_hand
    campaigns = [prepare(parse_config(values(**how))) for how in ({}, BY_HAND)]
    parts = [[ids(campaign.pool), ids(campaign.validation)] for campaign in campaigns]
    assert parts[0] == parts[1]
    assert sorted(parts[0][0] + parts[0][1]) == [f"r-{row:05d}" for row in range(600)]
    assert len(parts[0][1]) == by_share["validation"]["records"]
    assert by_share["pool_size"] == len(parts[0][0])


def test_the_certificate_counts_both_parts_and_says_how_they_came_about(folder):
    checks = dpal.verify(folder, ledger=LEDGER)
    assert not any_failed(checks)
    document = read_certificate(folder.certificate.read_text())
    cohort = document["cohorts"][-1]
    records = folder.read_record()["plan"]["validation"]["records"]
    assert (cohort["cohort"], cohort["planned_size"]) == (VALIDATION, records)
    assert document["pool"]["size"] == 600 - records
    assert 1.99 < cohort["epsilon_pld"] <= 2.0
    assert document["plan"]["content"]["spec"]["validation"]["share"] == 0.3
    (said,) = [one for one in document["exceptions"] if "coin" in one and "held out" in one]
    assert said[1:] in folder.report.read_text(), "after a capital letter"
    assert not any("held out" in one for one in by_hand_exceptions())


def by_hand_exceptions() -> list[str]:
    split_by_hand()
    runtime = {"artifacts": "artifacts-by-hand"}
    by_hand = dpal.run(parse_config(values(**BY_HAND, **ALONE, runtime=runtime)))
    exceptions: list[str] = read_certificate(by_hand.certificate.read_text())["exceptions"]
    return exceptions


def test_nobody_who_is_held_out_is_in_the_pool_of_a_campaign(folder):
    campaign = prepare(parse_config(values()))
    held_out, left = set(ids(campaign.validation)), ids(campaign.pool)
    files = folder.phase(1)
    assert pq.read_table(folder.start)["id"].to_pylist() == left
    assert not held_out & set(pq.read_table(files.selection)["id"].to_pylist())
    job = LabelingJob.recorded(folder)
    assert ids(job.pool) == left, "people are asked about records by their rows in the pool"


def test_plan_and_explanation_speak_of_the_share(folder):
    certified = prepare(parse_config(values())).certified
    (remark,) = [one for one in explain_campaign(certified) if "figures" in one.topic]
    assert remark.numbers["share"] == 0.3 and "0.3" in remark.text


def test_planning_leaves_nothing_behind(workplace):
    before = sorted(workplace.rglob("*"))
    dpal.plan(parse_config(values()))
    assert sorted(workplace.rglob("*")) == before


@pytest.fixture
def persons(workplace: Path) -> Path:
    """The small pool as 200 persons of three records each, none side by side."""
    table = pq.read_table("pool.parquet")
    names = np.random.default_rng(3).permutation(np.repeat(np.arange(200), 3))
    pq.write_table(table.append_column("person", pa.array(names)), "pool.parquet")
    return workplace


GROUPED: dict[str, Any] = {
    "data": {"pool": "pool.parquet", "group_column": "person"},
    "privacy": {"selection": "visible", "unit": "group", "epsilon": 20},
    "validation": {**SHARE, "group_records": 2},
    "schedule__initial": 50,
    "schedule__batch_size": 20,
}


def test_persons_stay_together(persons):
    folder = dpal.run(parse_config(values(**GROUPED, **ALONE)))
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    campaign = prepare(parse_config(values(**GROUPED, **ALONE)))
    of_each = [
        [name for batch in raw_batches(source, ["person"])
         for name in batch.table.column(0).to_pylist()]
        for source in (campaign.pool, campaign.validation)
    ]  # fmt: skip
    assert not set(of_each[0]) & set(of_each[1])
    assert len(of_each[0]) + len(of_each[1]) == 600
    told = campaign.certified.summary()["validation"]
    assert told["groups"] == len(set(of_each[1])) and told["records"] == 2 * told["groups"]
    split_by_hand("person")
    data = {**BY_HAND["data"], "group_column": "person"}
    validation = {**BY_HAND["validation"], "group_records": 2}
    changed = {**GROUPED, **ALONE, "data": data, "validation": validation}
    by_hand = dpal.plan(parse_config(values(**changed))).summary()
    assert by_hand["validation"] == {key: told[key] for key in told if key != "share"}
    certificate = read_certificate(folder.certificate.read_text())
    assert any("coin" in one and "group" in one for one in certificate["exceptions"])


KILLED = """
import json, os, signal, sys
import dpal
from dpal.runs import phase_measuring
from dpal.config.campaign import parse_config
phase_measuring.draw_counts = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
dpal.run(parse_config(json.loads(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_campaign_that_was_killed_goes_on_with_the_same_parts(workplace, forked):
    about = values(**ALONE)
    assert forked.run(KILLED, json.dumps(about)).returncode == -signal.SIGKILL
    folder = CampaignFolder(Path("artifacts/small"))
    before = pq.read_table(folder.start)["id"].to_pylist()
    dpal.run(parse_config(about))
    assert pq.read_table(folder.start)["id"].to_pylist() == before
    assert len(folder.finished_phases()) == 1
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))


def test_a_campaign_goes_on_with_its_own_pool_and_share_alone(workplace):
    dpal.run(parse_config(values(**ALONE)))
    before = Path("pool.parquet").read_bytes()
    with pytest.raises(LedgerError, match=r"validation\.share"):
        dpal.run(parse_config(values(**{**ALONE, "validation": {**SHARE, "share": 0.31}})))
    table = pq.read_table("pool.parquet")
    labels = table["label"].to_pylist()
    labels[0] = (labels[0] + 1) % 3
    place = table.schema.get_field_index("label")
    pq.write_table(table.set_column(place, "label", [labels]), "pool.parquet")
    with pytest.raises(DataError, check=nothing_released):
        dpal.run(parse_config(values(**ALONE)))
    Path("pool.parquet").write_bytes(before)
    dpal.run(parse_config(values(**ALONE)))


WRONG: dict[str, dict[str, Any]] = {
    "public": {"validation": {**SHARE, "public": True, "why": "x"}},
    "unprotected": {"validation": {**SHARE, "protected": False}},
    "file": {"data": {"pool": "pool.parquet", "validation": "validation.parquet"}},
    "data set": {"data": {"pool": "pool.parquet", "dataset": "clinic"}},
    "none": {"validation": {"share": 0}},
    "most": {"validation": {"share": 0.6}},
    "nothing": {"data": {"pool": "pool.parquet", "validation": None}, "validation": dict(PUBLIC)},
    "auto": {"acquisition": "auto"},
    "normalised": {"data": {"pool": "pool.parquet", "normalisation": {"kind": "validation"}}},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_contradicts_a_share_is_refused_in_one_sentence(wrong):
    with pytest.raises(ConfigError) as refused:
        parse_config(values(**WRONG[wrong]))
    assert "validation" in str(refused.value) and "\n" not in str(refused.value)


def test_a_share_is_protected_and_settings_are_read_again_as_they_are_written():
    config = parse_config(values())
    assert config.validation is not None and config.validation.protected
    assert config.data.validation is None
    for mode in ("json", "python"):
        assert parse_config(config.model_dump(mode=mode)) == config
    made = CampaignConfig(
        name="small",
        data=DataConfig(pool=Path("pool.parquet")),
        validation=DeclaredValidation(share=0.3),
    )
    assert made.data.validation is None


def test_other_kinds_refuse_a_share():
    for settings in (improving.settings("better"), voting.settings("votes")):
        with pytest.raises(ConfigError, match=r"validation\.share"):
            parse_any({**settings, "validation": SHARE})


def test_whom_a_start_held_out_votes_for_no_public_record(folder):
    """Figures were charged to them; the sum of these and of votes is in no total."""
    for name, rows in {"public": 200, "validation": 100}.items():
        write_blobs(Path(f"{name}.parquet"), rows, seed=rows, prefix=name)
    start = {"model": str(folder.phase(1).model), "certificate": str(folder.certificate)}
    wanted = improving.settings(
        "better",
        start=start,
        model={"name": "logistic"},
        choice={"method": "near_private", "labels": 40, "candidates": 60, "components": 3},
        privacy={"epsilon": 20.0},
    )
    better = plan_improvement(PublicConfig.model_validate(wanted))
    assert better.spec.guidance is not None
    private = better.start.private
    assert private is not None and ids(private) == pq.read_table(folder.start)["id"].to_pylist()


def test_a_file_that_says_itself_who_is_held_out_has_no_share(workplace):
    table = pq.read_table("pool.parquet")
    pq.write_table(table.append_column("split", pa.array(["train"] * 600)), "pool.parquet")
    with pytest.raises(DataError, check=nothing_released, match="split"):
        dpal.plan(parse_config(values()))


@pytest.mark.parametrize("left", [True, False], ids=["nobody held out", "nobody left"])
def test_a_pool_of_which_one_part_is_empty_is_refused(workplace, left):
    table = pq.read_table("pool.parquet")
    held_out = HeldOutShare(share=0.3).holds_out(table["id"].to_pylist())
    pq.write_table(table.filter([each is not left for each in held_out]), "pool.parquet")
    with pytest.raises(DataError, check=nothing_released, match=r"validation\.share"):
        dpal.plan(parse_config(values()))


def test_a_pool_without_groups_is_refused(workplace):
    with pytest.raises(DataError, check=nothing_released, match="person"):
        dpal.plan(parse_config(values(**GROUPED)))


def test_campaigns_that_hold_out_of_the_same_pool_are_told_what_is_lost(folder, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(validation_reuse_warning, "notify", said.append)
    prepare_campaign(parse_config(values(name="again")))
    (told,) = said
    assert "small" in told.split() and "pool.parquet" in told


def test_records_that_were_held_out_join_no_data_set(folder):
    """What their figures cost is in no account of one."""
    campaign = prepare(parse_config(values()))
    store = LedgerStore(LEDGER)
    about: dict[str, Any] = {
        "entries": store.verified(),
        "artifacts": Path("artifacts"),
        "owner_column": "id",
    }
    store.close()
    assert measured_on(campaign.validation, **about).about == ("small",)
    assert measured_on(campaign.pool, **about).about == (), "the others were not measured"
    table, held_out = pq.read_table("pool.parquet"), set(ids(campaign.validation))
    measured = pa.array([name in held_out for name in table["id"].to_pylist()])
    pq.write_table(table.filter(measured), "joining.parquet")
    limit = Limit(
        filter=RenyiFilter.fitted(20.0, 1e-4),
        adjacency=Adjacency.ZERO_OUT,
        unit=Unit.RECORD,
        group_column=None,
    )
    with pytest.raises(DataError, check=having(released=False), match="of small"):
        register_data_set("clinic", limit, [Path("joining.parquet")], RuntimeConfig())
