"""What a privacy officer asks the command: by cohort, by time, by data set, as a file."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.ledger_store import LedgerStore
from flows.cli.folder_arguments import By
from flows.cli.ledger_view import LedgerView
from tests.flows.calling import call, sentence
from tests.ledger.telling import tell


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("told") / "artifacts"
    root.mkdir()
    tell(root)
    return root


@pytest.fixture(autouse=True)
def _there(place, monkeypatch):
    monkeypatch.chdir(place.parent)
    monkeypatch.setattr("flows.cli.terminal.out._width", 200)  # as wide as it needs


def entries_of(place: Path) -> list[Entry]:
    with closing(LedgerStore(place / "ledger.sqlite")) as store:
        return store.entries()


def shown(*words: str) -> dict:
    result = call("ledger", "show", *words, "--json")
    assert result.returncode == 0, result
    return json.loads(result.stdout)


def printed(*words: str) -> str:
    result = call("ledger", "show", *words)
    assert result.returncode == 0, result
    return result.stdout


def test_by_cohort_adds_up_and_names_the_blocks():
    view = shown("artifacts/first")
    assert [one["cohort"] for one in view["cohorts"]] == ["0", "1", "never_selected"]
    assert view["campaign_epsilon"] <= view["target_epsilon"] == 3.0
    assert view["ended"] is True
    [block] = view["blocks"]
    assert (block["block"], block["size"], block["participation"]) == (0, 600, 1.0)
    assert {one["state"] for one in view["releases"]} == {"commit"}
    text = printed("first")  # its name will do
    assert "epsilon 3 at delta 0.0001" in text
    assert "adjacency zero_out" in text
    assert "take part" in text
    for one in view["cohorts"]:
        assert f"{one['epsilon_pld']:.4f}" in text


def test_all_campaigns_of_a_folder_are_shown_one_after_the_other(place):
    view = shown("artifacts")
    assert [one["name"] for one in view["campaigns"]] == ["first", "second"]
    states = {one["release"]: one["state"] for one in view["campaigns"][1]["releases"]}
    assert states == {
        "phase-0/training": "forfeit",
        "phase-1/selection": "reserve",
        "phase-0/training#2": "reserve",
    }
    assert view["head"]["digest"] == entries_of(place)[-1].digest
    assert printed("artifacts").count("Epsilon by cohort") == 2


def test_by_time_tells_every_entry_in_order(place):
    view, entries = shown("artifacts", "--by", "time"), entries_of(place)
    assert [one["sequence"] for one in view["entries"]] == [one.sequence for one in entries]
    assert {one["kind"] for one in view["entries"]} == set(EntryKind)
    assert {(one["name"], one["delta"], one["adjacency"]) for one in view["promises"]} == {
        ("first", 1e-4, "zero_out"),
        ("second", 1e-4, "zero_out"),
    }
    text = printed("artifacts", "--by", "time")
    before, _, table = text.partition("last column")
    for name in ("first", "second"):  # no epsilon before what belongs to it is said
        assert f"campaign {name}: epsilon" in before
    for said in (
        "opened the", "set clinic: epsilon 8 at delta 0.0001",
        "added block 1 of 400", "plan aside: 3 releases, epsilon 4",
        "reserved phase-0/training#2, charged once", "phase-0/training: 3 steps",
        "began phase-0/training again; 1 file thrown away", "committed phase-1/training",
        "phase-0/training stays spent: model is altered", "ended after 3 releases",
        'ledger (it was missing): "moved"',
    ):  # fmt: skip
        assert said in table
    assert "[/red]\\u001b[2J<script>" in table  # nothing in a reason is obeyed
    assert "\x1b" not in text


def test_a_running_epsilon_never_falls_and_ends_where_the_account_does():
    told = shown("artifacts/first", "--by", "time")["entries"]
    own = [one["epsilon_so_far"] for one in told if one["campaign"] == "first"]
    epsilons = [one for one in own if one is not None]
    assert len(epsilons) == 4  # three reservations and the end
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == shown("artifacts/first")["campaign_epsilon"]


def test_a_campaigns_story_is_that_of_its_data_set(place):
    told = shown("artifacts/first", "--by", "time")["entries"]
    assert {one["campaign"] for one in told} == {"", "first", "second"}
    assert len(told) == len(entries_of(place))


def test_by_data_says_what_is_left_and_who_took_it():
    [known] = shown("artifacts", "--by", "data")["datasets"]
    assert (known["dataset"], known["epsilon"], known["delta"]) == ("clinic", 9.0, 1e-4)
    first, second = known["blocks"]
    assert (first["size"], first["campaigns"]) == (600, ["first", "second"])
    assert (second["size"], second["campaigns"]) == (400, ["second"])
    for block in (first, second):
        parts = [one for one in known["parts"] if one["block"] == block["block"]]
        assert [one["campaign"] for one in parts] == block["campaigns"]
        assert block["share_left"] == pytest.approx(1 - sum(one["share"] for one in parts))
    text = printed("artifacts/second", "--by", "data")
    assert "epsilon 9 at delta 0.0001, adjacency zero_out, unit record" in text
    assert f"Renyi order {known['order']:g}" in text
    for words in ("spent", "held", "with other campaigns"):
        assert words in text


def test_a_campaign_on_no_data_set_says_so(tmp_path, monkeypatch):
    from dpal.config.runtime import RuntimeConfig
    from dpal.ledger.folder_lock import lock_folder
    from dpal.ledger.release_protocol import CampaignLedger
    from dpal.runs.open_ledger import open_ledger
    from tests.ledger.releasing import run_all

    monkeypatch.chdir(tmp_path)
    folder = CampaignFolder(Path("artifacts/alone"))
    with (
        lock_folder(folder.root),
        closing(open_ledger(RuntimeConfig(artifacts=Path("artifacts")))) as store,
    ):
        run_all(CampaignLedger(store, "alone", folder.root))
    folder.write_record({"config": {"runtime": {}}})
    assert "campaign alone takes nothing of a registered data set" in printed(
        "alone", "--by", "data"
    )
    assert shown("alone", "--by", "data")["datasets"] == []
    assert {one["campaign"] for one in shown("alone", "--by", "time")["entries"]} == {"", "alone"}
    assert "not summed" in Path(call("ledger", "page", "alone").stdout.strip()).read_text()


@pytest.mark.parametrize("name", ["ledger.parquet", "ledger.csv"])
def test_the_whole_ledger_or_one_campaign_is_exported(place, tmp_path, name):
    everything, one = tmp_path / name, tmp_path / f"one-{name}"
    entries = entries_of(place)
    said = call("ledger", "export", "artifacts", "--to", str(everything)).stdout
    assert said.startswith(f"{len(entries)} entries in ")
    call("ledger", "export", "first", "--to", str(one))
    table = pq.read_table(one).to_pandas() if name.endswith("parquet") else pd.read_csv(one)
    assert set(table["campaign"]) == {"first"}
    assert set(table["digest"]) == {e.digest for e in entries if e.campaign == "first"}
    assert everything.stat().st_mode & 0o077 == 0
    refused = call("ledger", "export", "first", "--to", str(tmp_path / "ledger.json"))
    assert "nothing was written" in sentence(refused)


def test_the_page_is_written_beside_the_campaign_or_where_it_is_asked_for(tmp_path):
    assert call("ledger", "page", "first").stdout.strip() == "artifacts/first/ledger.html"
    page = Path("artifacts/first/ledger.html")
    assert page.stat().st_mode & 0o077 == 0
    assert "It is the newest copy known" in page.read_text()
    call("ledger", "page", "artifacts/first", "--to", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == page.read_text()


def test_a_copy_without_its_anchor_has_a_page_that_doubts_it(place, tmp_path, monkeypatch):
    shutil.copytree(place, tmp_path / "copy")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    page = call("ledger", "page", str(tmp_path / "copy" / "first"))
    assert page.returncode == 0, page
    text = Path(page.stdout.strip()).read_text()
    assert "not anchored" in text
    assert "It is the newest copy known" not in text
    assert str(tmp_path) not in text  # no path of this machine


def test_an_altered_ledger_is_not_shown_or_exported(place, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    raw = sqlite3.connect(copy / "ledger.sqlite")
    raw.execute("DROP TRIGGER entries_refuse_update")
    raw.execute("UPDATE entries SET release = 'phase-9/training' WHERE sequence = 7")
    raw.commit()
    raw.close()
    target = tmp_path / "x.csv"
    for words in (
        ("show", str(copy)), ("show", str(copy), "--by", "data"), ("page", str(copy / "first")),
        ("export", str(copy), "--to", str(target)),
    ):  # fmt: skip
        result = call("ledger", *words)
        assert result.returncode == 1, words
        assert "ledger entry 7 was altered" in result.stderr
        assert result.stdout == ""
    assert not target.exists()


def test_campaigns_with_several_ledgers_are_asked_for_one_by_one(place, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    elsewhere = {"config": {"runtime": {"ledger": "postgresql://host/name"}}}
    CampaignFolder(copy / "second").write_record(elsewhere)
    said = sentence(call("ledger", "show", str(copy)))
    assert "one ledger" in said
    assert "copy/first" in said
    assert "is not a campaign folder" in sentence(call("ledger", "show", str(tmp_path)))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("by", By)
def test_a_terminal_breaks_no_number(place, monkeypatch, by, width):
    monkeypatch.setattr("flows.cli.terminal.out._width", width)
    text = printed("artifacts/first", "--by", by)
    rows = [line for line in text.splitlines() if not line.startswith(("campaign", "data", "head"))]
    assert max(len(line) for line in rows) <= width
    view = LedgerView.at(CampaignFolder(place / "first")).as_object(by)
    numbers = {
        By.COHORT: [one["epsilon_pld"] for one in view.get("cohorts", [])],
        By.TIME: [one["epsilon_so_far"] for one in view.get("entries", [])],
        By.DATA: [one["epsilon"] for known in view.get("datasets", []) for one in known["parts"]],
    }[by]
    assert numbers
    for number in numbers:
        assert number is None or f"{number:.4f}" in text


def test_a_ledger_without_entries_is_one_sentence(tmp_path):
    with closing(LedgerStore(tmp_path / "ledger.sqlite")):
        pass
    for words in (("show", str(tmp_path)), ("export", str(tmp_path), "--to", "entries.csv")):
        assert "no entries yet" in sentence(call("ledger", *words))
