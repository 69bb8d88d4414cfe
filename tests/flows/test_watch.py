"""Files arrive in a folder: a campaign, a rerun, nothing, a quarantine; once for all tests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlflow
import pytest
import yaml

from dpal.data.inbox.state import Stage, WatchFolder
from dpal.data.labeling_state import labels_of
from dpal.files.artifacts import CampaignFolder
from tests.conftest import flows_at, write_blobs
from tests.flows.calling import call, sentence
from tests.flows.watching import watch_values

pytestmark = pytest.mark.slow  # whole campaigns; test_watch_steps.py has the steps


def write_watch(mlflow_uri, **changes):
    registry = {"champion": "not_worse", "most_loss": 0.1}
    changes |= {"campaign__runtime": {"mlflow_uri": mlflow_uri, "registry": registry}}
    Path("watch.yaml").write_text(yaml.safe_dump(watch_values(**changes)))


def remembered():
    return WatchFolder(Path("artifacts/watch/clinic")).read()


def blocks():
    return json.loads(call("data", "show", "clinic", "--json").stdout)["clinic"]["blocks"]


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory):
    """A database of its own: other watches of that name are in the one that tests share."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.sqlite'}"


@pytest.fixture(scope="module")
def place(prefect_api, mlflow_uri, tmp_path_factory):
    """What happened in the folder, step by step."""
    folder = tmp_path_factory.mktemp("watch")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(folder)
        # Other tests may have deployed campaigns to this server, and no worker is there.
        patch.setattr("tasks.watched_runs.campaign_deployment", lambda: None)
        write_blobs(folder / "inbox" / "january.parquet", 600, seed=1)
        write_blobs(folder / "validation.parquet", 300, seed=2, prefix="v")
        write_watch(mlflow_uri)
        said = {"early": call("watch", "watch.yaml", "--once")}
        call("data", "register", "clinic", "inbox", "--epsilon", "8", "--delta", "1e-4")
        said["first"] = call("watch", "watch.yaml", "--once")
        write_blobs(folder / "inbox" / "march.parquet", 400, seed=5, prefix="n")
        said["second"] = call("watch", "watch.yaml", "--once")
        yield folder, said


@pytest.fixture(autouse=True)
def _there(place, monkeypatch, orchestrated):
    monkeypatch.chdir(place[0])


def test_a_watch_sets_no_limit(place):
    said = sentence(place[1]["early"])
    assert "never sets" in said
    assert "POOL.parquet --epsilon 8" in said


def test_the_second_file_starts_a_rerun_with_what_is_left(place):
    first, second = place[1]["first"], place[1]["second"]
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert "Campaign clinic-0001 on 1 file is finished" in first.stdout
    assert "block 1 has 400 new" in second.stderr
    assert "Campaign clinic-0002 on 2 files is finished" in second.stdout
    assert "2 campaigns: 2 finished. " in second.stdout
    old, new = CampaignFolder(Path("artifacts/clinic-0002")).read_record()["plan"]["blocks"]
    assert (old["block"], old["size"], new["block"], new["size"]) == (0, 600, 1, 400)
    assert new["participation"] == 1.0
    assert 0.1 <= old["participation"] < 1.0
    before, after = blocks()
    assert 5.0 < before["epsilon_taken"] <= 8.0
    assert before["share_left"] < 0.01 < after["share_left"]
    assert before["campaigns"] == ["clinic-0001", "clinic-0002"]


def test_the_rerun_goes_on_from_the_campaign_before():
    record = CampaignFolder(Path("artifacts/clinic-0002")).read_record()
    assert record["config"]["start_from"] == "clinic-0001"
    first, second = (CampaignFolder(Path(f"artifacts/clinic-000{one}")) for one in (1, 2))
    assert labels_of(second.phase(0).pool) == labels_of(first.phase(0).pool)


def test_reruns_are_versions_of_one_model_and_the_rule_moves_its_champion(mlflow_uri):
    client = mlflow.MlflowClient(mlflow_uri, mlflow_uri)
    [model] = client.search_registered_models()
    assert model.name == "dpal-clinic"
    assert "data set clinic" in model.description
    told = [client.get_model_version(model.name, number) for number in "12"]
    assert [one.tags["dpal.campaign"] for one in told] == ["clinic-0001", "clinic-0002"]
    assert "records +400" in told[1].tags["dpal.changed"]
    assert str(model.aliases["champion"]) == "2"


def test_the_same_file_again_starts_nothing():
    before = remembered()
    shutil.copy("inbox/march.parquet", "inbox/again.parquet")
    shutil.copy("inbox/march.parquet", "march.parquet")
    shutil.move("march.parquet", "inbox/march.parquet")
    ended = call("watch", "watch.yaml", "--once")
    assert ended.returncode == 0
    after = remembered()
    assert (after.accepted, after.runs) == (before.accepted, before.runs)
    assert len(blocks()) == 2
    assert set(after.seen) == {"january.parquet", "march.parquet", "again.parquet"}
    assert not Path("artifacts/clinic-0003").exists()


def test_a_corrupt_file_is_put_away_and_starts_nothing():
    before = remembered()
    whole = Path("inbox/march.parquet").read_bytes()
    Path("inbox/corrupt.parquet").write_bytes(whole[: len(whole) // 2])
    ended = call("watch", "watch.yaml", "--once")
    assert ended.returncode == 0
    after = remembered()
    assert (after.accepted, after.runs) == (before.accepted, before.runs)
    assert not Path("inbox/corrupt.parquet").exists()
    assert Path("inbox/quarantine/corrupt.parquet").read_bytes() == whole[: len(whole) // 2]
    reason = Path("inbox/quarantine/corrupt.parquet.reason.txt").read_text()
    assert reason == "corrupt.parquet is not a whole Parquet file\n"
    assert "corrupt.parquet" in call("watch", "watch.yaml", "--status").stdout


def test_what_cannot_fit_is_refused_with_the_numbers(mlflow_uri):
    write_watch(mlflow_uri, campaign__privacy__epsilon=9.0)
    write_blobs(Path("inbox/april.parquet"), 400, seed=7, prefix="a")
    ended = call("watch", "watch.yaml", "--once")
    refused = remembered().last
    assert (ended.returncode, refused.name, refused.stage) == (0, "clinic-0003", Stage.REFUSED)
    assert "block 2 of" in refused.said
    assert "of 8 allowed (delta 0.0001, zero_out, record), where 0.0000 is taken" in refused.said
    assert refused.said in ended.stdout
    assert blocks()[2]["campaigns"] == []
    assert "stays refused" in call("watch", "watch.yaml", "--once").stderr


def test_a_refused_campaign_starts_once_its_owner_allows_more(mlflow_uri):
    test_what_cannot_fit_is_refused_with_the_numbers(mlflow_uri)
    call("data", "limit", "clinic", "--epsilon", "12", "--reason", "board, May 3")
    ended = call("watch", "watch.yaml", "--once")
    assert "Campaign clinic-0003 on 3 files is finished" in ended.stdout, ended
    assert blocks()[2]["campaigns"] == ["clinic-0003"]
