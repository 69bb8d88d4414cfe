"""Where the application keeps a ledger and its anchors, and what a person is told of both."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.runs.open_ledger import open_ledger, recorded_ledger
from tests.flows.calling import call, sentence
from tests.ledger.releasing import hold
from tests.postgres import postgres, postgres_server  # noqa: F401


@pytest.fixture
def campaign(workplace):
    """Starts a campaign as far as its hold, in the ledger that settings name."""

    def start(**runtime: str) -> CampaignFolder:
        config = parse_config({"name": "small", "runtime": runtime})
        folder = CampaignFolder(Path("artifacts/small"))
        with lock_folder(folder.root), closing(open_ledger(config.runtime)) as store:
            hold(CampaignLedger(store, "small", folder.root))
        folder.write_record({"config": config.model_dump(mode="json")})
        return folder

    return start


def test_anchors_are_in_this_users_state_folder(campaign, state_home):
    before = set(state_home.rglob("*.json"))
    folder = campaign()
    [anchor] = set(state_home.rglob("*.json")) - before
    assert anchor.parent == state_home / "dpal" / "anchors"
    with closing(recorded_ledger(folder)) as store:
        assert anchor.stem == store.verified()[0].body["identity"]
    assert call("ledger", "verify", "artifacts/small").stdout.startswith("sound: 2 entries, head ")


def test_a_copied_ledger_is_whole_but_vouched_for_by_nobody(campaign, tmp_path):
    """From here it is refused; elsewhere a person may adopt it, with a reason that stays."""
    folder = campaign(anchors=str(tmp_path / "anchors"))
    shutil.rmtree(tmp_path / "anchors")
    looked = call("ledger", "verify", "artifacts/small")
    assert looked.returncode == 1
    assert looked.stdout.startswith("whole, but")
    assert "DIR --reason TEXT" in looked.stdout
    assert call("ledger", "adopt", "artifacts/small").returncode == 2  # no reason
    adopted = call("ledger", "adopt", "artifacts/small", "--reason", "moved here")
    assert adopted.returncode == 0
    assert "entry 3 says" in adopted.stdout
    assert call("ledger", "verify", "artifacts/small").returncode == 0
    again = call("ledger", "adopt", "artifacts/small", "--reason", "to be sure")
    assert "to adopt" in sentence(again)
    with closing(recorded_ledger(folder)) as store:
        assert store.entries()[-1].body["reason"] == "moved here"


@pytest.mark.parametrize("there", [True, False])
def test_where_no_ledger_ever_was_none_is_made_to_be_adopted(workplace, there):
    place = workplace / "artifacts"
    if there:
        place.mkdir()
    assert sentence(call("ledger", "adopt", "artifacts", "--reason", "moved here"))
    assert place.exists() == there
    assert not there or not list(place.iterdir())


def test_a_restored_ledger_is_adopted_only_by_naming_what_is_lost(campaign):
    folder = campaign()
    shutil.copy(folder.ledger, "backup.sqlite")
    with lock_folder(folder.root), closing(recorded_ledger(folder)) as store:
        hold(CampaignLedger(store, "other", folder.root), pool="def")
        lost = store.entries()[-1].digest
    shutil.copy("backup.sqlite", folder.ledger)
    refused = call("ledger", "adopt", "artifacts/small", "--reason", "the disk died")
    assert f"--despite {lost}" in sentence(refused)
    named = call(
        "ledger", "adopt", "artifacts/small", "--reason", "the disk died", "--despite", lost
    )
    assert named.returncode == 0


def test_a_campaign_remembers_its_database(campaign, postgres, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setenv("PGPASSWORD", "given elsewhere")
    folder = campaign(ledger=postgres)
    assert not folder.ledger.exists()
    monkeypatch.chdir(tmp_path.parent)
    sound = call("ledger", "verify", str(tmp_path / "artifacts" / "small"))
    assert sound.stdout.startswith("sound: 2 entries, head "), sound


def test_anchors_beside_the_ledger_are_refused(workplace):
    runtime = parse_config(
        {"name": "small", "runtime": {"anchors": str(workplace / "artifacts" / "anchors")}}
    ).runtime
    with pytest.raises(ConfigError, match="would restore"):
        open_ledger(runtime)
    assert not (workplace / "artifacts").exists()


def test_a_ledger_that_was_deleted_is_missed(campaign):
    """The next campaign would begin with nothing spent: whoever says that it may names the loss."""
    folder = campaign()
    with closing(recorded_ledger(folder)) as store:
        lost = store.entries()[-1].digest
    for path in Path("artifacts").glob("ledger.sqlite*"):
        path.unlink()
    register = ("data", "register", "clinic", "pool.parquet", "--epsilon", "8")
    refused = call(*register)
    assert "had 2 entries" in sentence(refused)
    assert f"--despite {lost}" in sentence(refused)
    shutil.rmtree("artifacts")  # nor does it help to take away the whole folder
    assert "had 2 entries" in sentence(call(*register))
    Path("artifacts").mkdir(exist_ok=True)
    for_good = ("ledger", "adopt", "artifacts", "--reason", "the disk died")
    assert f"--despite {lost}" in sentence(call(*for_good))
    assert call(*for_good, "--despite", lost).returncode == 0
    assert call(*register).returncode == 0


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("ledger", "postgresql://me:secret@host/db", "holds a password"),
        ("ledger", "postgresql://me@host/db?password=secret", "holds a password"),
        ("ledger", "mysql://host/db", "postgresql:// URL"),
        ("ledger", "ledger.sqlite", "postgresql:// URL"),
        ("anchors", "anchors", "start with /"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(setting, value, said):
    with pytest.raises(ConfigError, match=said) as refused:
        parse_config({"name": "small", "runtime": {setting: value}})
    assert "secret" not in str(refused.value)


def test_a_ledger_of_data_sets_alone_can_be_vouched_for(workplace, tmp_path):
    """Before the first campaign there is no folder but that of all of them."""
    anchors = ["--set", f"runtime.anchors={tmp_path / 'state'}"]
    registered = call("data", "register", "clinic", "pool.parquet", "--epsilon", "8")
    assert registered.returncode == 0, registered
    add = ("data", "add", "clinic", "validation.parquet")
    assert "dpal ledger adopt" in sentence(call(*add, *anchors))  # another machine, as it were
    assert call("ledger", "verify", "artifacts").stdout.startswith("sound: 3 entries")
    assert "to adopt" in sentence(call("ledger", "adopt", "artifacts", "--reason", "moved"))
    shutil.rmtree(next(path for path in _state().rglob("anchors")))
    assert "dpal ledger adopt" in sentence(call(*add))
    assert call("ledger", "adopt", "artifacts", "--reason", "moved").returncode == 0
    assert call(*add).returncode == 0


def _state() -> Path:
    return Path(os.environ["XDG_STATE_HOME"])


def test_an_old_copy_is_called_old_and_not_altered(campaign):
    folder = campaign()
    file = Path("artifacts/ledger.sqlite")
    old = file.read_bytes()
    with lock_folder(folder.root), closing(recorded_ledger(folder)) as store:
        CampaignLedger(store, "small", folder.root).end()
        head = store.entries()[-1].digest
    for path in Path("artifacts").glob("ledger.sqlite*"):
        path.unlink()
    file.write_bytes(old)
    told = call("ledger", "verify", "artifacts")
    assert told.returncode == 1
    assert "altered" not in told.stdout
    assert told.stdout.startswith("whole, but")
    assert "lacks" in sentence(call("data", "show"))  # a data owner decides by it
    adopted = call("ledger", "adopt", "artifacts", "--reason", "backup", "--despite", head)
    assert "all blocks" in adopted.stdout
    assert call("ledger", "verify", "artifacts").returncode == 0
