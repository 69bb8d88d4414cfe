"""The files of a phase come back by their hash: exactly, or not at all."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import mlflow
import pytest

from dpal.canonical import file_digest
from dpal.config.campaign import parse_config
from dpal.files.artifacts import CampaignFolder
from tests.conftest import flows_at, small_values, write_blobs
from tests.flows.calling import call, sentence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def campaign(prefect_api, tmp_path_factory):
    """A campaign of one phase, pushed to a remote, told of in an MLflow of its own."""
    from flows.campaign import run_campaign

    place = tmp_path_factory.mktemp("restored")
    write_blobs(place / "pool.parquet", 300, seed=1)
    write_blobs(place / "validation.parquet", 100, seed=2, prefix="v")
    schedule = {"initial": 60, "queries": [], "batch_size": 30, "epochs_per_phase": 1}
    values = small_values(name="back", schedule=schedule, runtime__dvc_remote=str(place / "remote"))
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(place)
        run_campaign(parse_config(values))
    return place


@pytest.fixture
def place(campaign, tmp_path, monkeypatch):
    """A copy that may be damaged; the remote is the common one."""
    for name in ("artifacts", "pool.parquet", "validation.parquet"):
        source = campaign / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folder_of(place: Path) -> CampaignFolder:
    return CampaignFolder(place / "artifacts" / "back")


def digests(place: Path) -> dict[str, str]:
    names = folder_of(place).phase(0).artifacts
    return {path.name: file_digest(path) for path in names}


def lose(place: Path, *, confidential: bool = True) -> None:
    files = folder_of(place).phase(0)
    shutil.rmtree(files.root)
    if confidential:
        shutil.rmtree(files.confidential)


def printed_command(place: Path) -> list[str]:
    """What the phase's run in MLflow says, as a person would paste it."""
    mlflow.set_tracking_uri(f"sqlite:///{place / 'artifacts' / 'mlflow.sqlite'}")
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    tags = next(one.data.tags for one in runs if one.data.tags["dpal.phase"] == "0")
    assert tags["dvc.restore"] in tags["mlflow.note.content"]
    assert tags["dvc.restore"] in (folder_of(place).report_page).read_text()
    program, *arguments = shlex.split(tags["dvc.restore"])
    assert program == "dpal"
    return arguments


def test_the_printed_command_brings_back_the_exact_pool(place):
    before, command = digests(place), printed_command(place)
    lose(place)
    done = call(*command)
    assert done.returncode == 0, done
    assert digests(place) == before
    assert folder_of(place).phase(0).read_manifest() is not None
    assert "it committed" in done.stdout
    files = folder_of(place).phase(0)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.artifacts)
    again = call(*command)
    assert "restored" not in again.stdout.replace(str(place), "")  # all of it is there


def test_a_run_of_mlflow_is_enough(place):
    before = digests(place)
    printed_command(place)
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    run = next(one.info.run_id for one in runs if one.data.tags["dpal.phase"] == "0")
    lose(place)
    assert call("restore", "--run", run).returncode == 0
    assert digests(place) == before
    parent = next(one.info.run_id for one in runs if one.data.tags["dpal.phase"] == "all")
    assert "is not the run of a phase" in sentence(call("restore", "--run", parent))


def test_the_remote_has_what_was_released_and_nothing_else(place):
    before = digests(place)
    shutil.rmtree(place / "artifacts" / ".dvc" / "cache")
    done = call("restore", "artifacts/back", "--phase", "0", "--to", "elsewhere")
    assert done.returncode == 0, done
    assert "never pushed" in done.stdout
    names = {path.name for path in (place / "elsewhere").rglob("*") if path.is_file()}
    assert names == {
        "model.safetensors", "optimizer.safetensors", "metrics.json", "ledger.parquet",
        "ledger.dsse.json", "manifest.json",
    }  # fmt: skip
    restored = place / "elsewhere" / "phase-0" / "model.safetensors"
    assert file_digest(restored) == before["model.safetensors"]


def test_a_file_that_differs_is_kept(place):
    model = folder_of(place).phase(0).model
    right = file_digest(model)
    model.write_bytes(b"mine")
    command = ("restore", "artifacts/back", "--phase", "0")
    assert "differs from" in sentence(call(*command))
    assert model.read_bytes() == b"mine"
    assert call(*command, "--force").returncode == 0
    assert file_digest(model) == right


def test_a_cache_that_was_altered_restores_nothing(place):
    lose(place)
    shutil.move(place / "artifacts" / ".dvc" / "config", place / "config")  # no remote helps out
    config = (place / "config").read_text().replace("remote = campaigns", "")
    (place / "artifacts" / ".dvc" / "config").write_text(config)
    wanted = b"cohorts"
    cache = place / "artifacts" / ".dvc" / "cache"
    [metrics] = [one for one in cache.rglob("*") if one.is_file() and wanted in one.read_bytes()
                 and b"campaign_epsilon" in one.read_bytes()]  # fmt: skip
    metrics.chmod(0o600)
    metrics.write_text("{}")
    metrics.chmod(0o400)
    refused = call("restore", "artifacts/back", "--phase", "0")
    assert refused.returncode == 2, refused
    assert "nothing was written" in refused.stderr
    assert not folder_of(place).phase(0).root.exists()


def test_another_ledger_is_named(place):
    from tests.certificate.certifying import plan_of, run

    other, _ = run(place / "other", plan_of("visible"), campaign="back")
    lose(place)
    command = ("restore", "artifacts/back", "--phase", "0", "--ledger", str(other))
    assert "another ledger entry" in sentence(call(*command))
    assert not folder_of(place).phase(0).root.exists()
