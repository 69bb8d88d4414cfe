"""Who trains for a campaign takes the plan that the ledger holds, or plans and certifies itself."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.accounting.renyi_filter import RenyiFilter
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.runtime import RuntimeConfig
from dpal.data.labeling_state import load_all
from dpal.errors import AnchorError, DataChanged, DataError, LedgerTampered
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.data_set_accounts import Limit
from dpal.ledger.folder_lock import lock_folder
from dpal.privacy import Adjacency, Unit
from dpal.runs import campaign_from_held_plan
from dpal.runs.campaign import Campaign
from dpal.runs.campaign_from_held_plan import HELD_PLAN, held_campaign
from dpal.runs.manage_data_sets import register_data_set
from dpal.runs.prepare_campaign import hold_budget, prepare_campaign, prepare_ordered
from tests.conftest import mislabel, small_values, write_blobs
from tests.variants import quick_and_slow

FOLDER = CampaignFolder(Path("artifacts/small"))

pytestmark = pytest.mark.usefixtures("workplace")


def config(**changes: Any) -> CampaignConfig:
    return parse_config(small_values(**changes))


def held(**changes: Any) -> Campaign:
    """A campaign that its ledger holds."""
    campaign = prepare_campaign(config(**changes))
    with lock_folder(campaign.folder.root):
        hold_budget(campaign)
    return campaign


def edit(change: Callable[[dict[str, Any]], object]) -> None:
    record = FOLDER.read_record()
    change(record)
    FOLDER.write_record(record)


HIDDEN = {"privacy": {"selection": "hidden"}, "schedule__queries": [150], "schedule__initial": 150}
MEASURED = {"validation": {"protected": True, "epsilon": 2.0}, "acquisition": "random"}


@pytest.mark.parametrize(
    "changes",
    quick_and_slow(
        [MEASURED],
        [
            {},
            HIDDEN,
            {"privacy": {"selection": "paper"}},
            {"acquisition": "random", "strategy": "continual"},
            MEASURED,
            {"data__normalisation": {"kind": "validation"}, "self_training": {"epochs": 2}},
            {"privacy": {"selection": "visible", "accountant": "rdp"}},
        ],
    ),
)
def test_the_held_plan_is_taken_as_it_is(changes, monkeypatch):
    led = held(**changes)
    anew: list[object] = []
    monkeypatch.setattr(
        "dpal.runs.plan_new_campaign.certified_or_next_best", lambda spec: anew.append(spec)
    )
    campaign = prepare_ordered(config(**changes))
    assert not anew
    assert campaign.plan == led.plan
    assert campaign.plan.digest == led.plan.digest
    assert campaign.start.data == led.start.data
    assert (campaign.pool, campaign.validation) == (led.pool, led.validation)
    assert campaign.class_names == led.class_names


def test_figures_of_a_held_plan_are_never_read_but_certified(monkeypatch):
    """Nothing is said of what a plan costs that was not computed by who says it."""
    led = held()
    campaign = prepare_ordered(config())
    assert campaign.start.proof is None
    assert campaign.certified.summary() == led.certified.summary()


def noisier(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["phases"][0]["training"]["noise_multiplier"] *= 0.5


def fewer_steps(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["phases"][1]["training"]["steps"] -= 1


def other_selection(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["phases"][1]["selection"] = {"part": "RandomDraw", "candidates": None}


def other_pool_size(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["facts"]["pool_size"] += 1


def other_strategy(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["strategy"] = "naive"


def other_version(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["version"] = "0.0.1"


def other_settings(record: dict[str, Any]) -> None:
    record["config"]["training"]["learning_rate"] = 0.25


def none(record: dict[str, Any]) -> None:
    del record[HELD_PLAN]


def nonsense(record: dict[str, Any]) -> None:
    record[HELD_PLAN] = ["phases"]


def damaged(record: dict[str, Any]) -> None:
    record[HELD_PLAN]["phases"] = {"part": "Phase"}


@pytest.mark.parametrize(
    "change",
    [
        noisier,
        fewer_steps,
        other_selection,
        other_pool_size,
        other_strategy,
        other_version,
        other_settings,
        none,
        nonsense,
        damaged,
    ],
)
def test_another_record_goes_the_whole_way(change):
    led = held()
    edit(change)
    assert held_campaign(config()) is None
    campaign = prepare_ordered(config())
    assert campaign.start.proof is not None
    assert campaign.plan == led.plan


@pytest.mark.parametrize(
    "changes",
    [
        {"training__max_grad_norm": 0.5},
        pytest.param({"privacy": {"selection": "visible", "epsilon": 9.0}}, marks=pytest.mark.slow),
    ],
)
def test_other_settings_than_were_held_go_the_whole_way(changes):
    """Also where somebody made the record fit them: the ledger's digest decides."""
    led = held()
    wanted = config(**changes)
    assert held_campaign(wanted) is None
    edit(lambda record: record.update(config=campaign_from_held_plan._dumped(wanted)))
    assert held_campaign(wanted) is None
    assert prepare_ordered(wanted).plan.digest != led.plan.digest


@pytest.mark.parametrize("name", ["pool", "validation"])
def test_other_files_go_the_whole_way(name):
    held()
    if name == "pool":
        write_blobs(Path("pool.parquet"), 600, seed=3)
    else:
        write_blobs(Path("validation.parquet"), 300, seed=4, prefix="v")
    assert held_campaign(config()) is None
    assert prepare_ordered(config()).start.proof is not None


def test_files_that_do_not_fit_any_more_are_refused():
    held()
    write_blobs(Path("validation.parquet"), 300, seed=1)  # the pool's own records
    Path("pool.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError):
        prepare_ordered(config())


def test_a_plan_that_the_ledger_does_not_hold_goes_the_whole_way():
    """A record without its ledger proves nothing."""
    held()
    Path("artifacts/ledger.sqlite").rename("elsewhere.sqlite")
    assert held_campaign(config()) is None


@pytest.mark.slow
def test_a_plan_of_another_ledger_goes_the_whole_way():
    held()
    there = held(runtime__artifacts="elsewhere", privacy={"selection": "visible", "epsilon": 5.0})
    shutil.copytree("elsewhere/small", FOLDER.root, dirs_exist_ok=True)
    assert held_campaign(config(privacy={"selection": "visible", "epsilon": 5.0})) is None
    assert held_campaign(there.config) is not None


def test_a_plan_is_held_only_with_the_very_releases_and_files():
    """The digest of a plan does not tell an event from another one with the same numbers."""
    led = held()
    releases = list(led.plan.releases())
    with led.ledger() as ledger:
        pool = campaign_from_held_plan._committed(FOLDER, led.pool)
        assert ledger.holds(led.plan.digest, pool, releases)
        assert not ledger.holds(led.plan.digest, pool, releases[:-1])
        assert not ledger.holds(led.plan.digest, "0" * 64, releases)
        assert not ledger.holds("0" * 64, pool, releases)


def test_a_changed_ledger_is_refused():
    """Releases of the hold were made cheaper in place: the chain tells."""
    held()
    with sqlite3.connect("artifacts/ledger.sqlite") as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type='trigger'"):
            ledger.execute(f"DROP TRIGGER {trigger}")
        [(body,)] = ledger.execute("SELECT body FROM entries WHERE kind='hold'").fetchall()
        changed = {**json.loads(body), "epsilon": 9.0}
        ledger.execute("UPDATE entries SET body=? WHERE kind='hold'", (json.dumps(changed),))
    with pytest.raises(LedgerTampered):
        held_campaign(config())


@pytest.mark.slow
def test_an_older_copy_of_the_ledger_is_refused():
    """What it lacks may have been spent."""
    held()
    shutil.copy("artifacts/ledger.sqlite", "before.sqlite")
    held(name="other")
    shutil.copy("before.sqlite", "artifacts/ledger.sqlite")
    with pytest.raises(AnchorError):
        held_campaign(config())


def test_a_file_that_changes_after_the_look_at_it_is_refused_where_it_is_read() -> None:
    led = held()
    campaign = prepare_ordered(config())
    for ours, theirs in ((campaign.pool, led.pool), (campaign.validation, led.validation)):
        [now], [then] = ours.known, theirs.known
        assert (now.sha256, now.columns) == (then.sha256, then.columns)
    mislabel(Path("pool.parquet"))
    with pytest.raises(DataChanged):
        load_all(campaign.pool)


def none_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the held plan was certified anew")

    monkeypatch.setattr("dpal.runs.plan_new_campaign.certified_or_next_best", refused)
    monkeypatch.setattr("dpal.runs.plan_new_campaign.plan_within", refused)


@pytest.mark.slow
def test_that_of_groups_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pq.read_table("pool.parquet")
    persons = pa.array([f"person-{row % 250}" for row in range(table.num_rows)])
    pq.write_table(table.append_column("person", persons), "pool.parquet")
    asked = {
        "data__group_column": "person",
        "privacy": {"selection": "visible", "epsilon": 20, "unit": "group"},
    }
    led = held(**asked)
    none_certified(monkeypatch)
    campaign = prepare_ordered(config(**asked))
    assert campaign.plan.spec.target.unit is Unit.GROUP
    assert campaign.plan == led.plan


@pytest.mark.slow
def test_those_of_a_data_set_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a campaign on it, and of one that goes on from there."""
    limit = Limit(
        filter=RenyiFilter.fitted(20.0, 1e-4), adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD
    )
    register_data_set("clinic", limit, [Path("pool.parquet")], RuntimeConfig())
    on_clinic: dict[str, Any] = {
        "data__dataset": "clinic", "privacy": {"selection": "visible", "epsilon": 4},
        "schedule__queries": [],
    }  # fmt: skip
    later = {**on_clinic, "name": "later", "start_from": "small", "schedule__queries": [20]}
    dpal.run(config(**on_clinic))
    led = held(**later)
    none_certified(monkeypatch)
    for asked, plan in ((on_clinic, None), (later, led.plan)):
        campaign = prepare_ordered(config(**asked))
        assert campaign.start.data is not None and campaign.start.data.dataset == "clinic"
        assert plan is None or campaign.plan == plan
    assert campaign.start.earlier is not None
