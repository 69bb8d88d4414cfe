"""What a person sees in Prefect's list of runs: campaigns and trainings, and no looks."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dpal.data.inbox.state import Stage, WatchFolder
from dpal.files.artifacts import CampaignFolder
from tasks.wait_for_people import waiting_phases
from tests.conftest import command, write_blobs, write_config
from tests.flows.pooling import Site, await_true, kill
from tests.flows.watching import watch_values

pytestmark = [pytest.mark.slow, pytest.mark.timing]

WORK = {"campaign", "public", "pate", "vote", "train-phase", "train-repeatable"}
DESK = True  # of versions before there was one, looks are flow runs


def test_nearly_all_runs_are_campaigns_and_trainings(tmp_path, monkeypatch):
    """People label twice and files arrive twice; the desk is killed while all of it waits."""
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path)
    site.environment |= {"XDG_STATE_HOME": str(tmp_path / "state")}
    try:
        site.server()
        prepare(site)
        site.start("worker.log", command(), "worker", "campaigns")
        desk = site.start("desk.log", command(), "desk") if DESK else None
        started(site, "campaign/small")
        people = CampaignFolder(tmp_path / "artifacts" / "small")
        await_true(lambda: suspended(site, "small"), 240)
        if desk is not None:
            kill(desk)
            site.start("desk.log", command(), "desk")
        answer(site, people)
        await_true(lambda: finished(people) == 1 and suspended(site, "small"), 300)
        await_true(lambda: done("clinic-0001"), 300)
        shutil.copy(write_blobs(Path("march.parquet"), 400, seed=5, prefix="n"), "inbox")
        answer(site, people)
        await_true(lambda: finished(people) == 2, 300)
        await_true(lambda: done("clinic-0002"), 300)
        runs = Counter(run["name"] for run in flow_names(site))
        share = sum(count for name, count in runs.items() if name in WORK) / runs.total()
        print(f"{share:.1%} of {runs.total()} runs: {dict(runs)}")  # noqa: T201
        assert runs["campaign"] == 3
        assert share >= 0.95, runs
    finally:
        site.close()


def prepare(site: Site) -> None:
    """A campaign whose labels people bring as files, and a watch."""
    write_blobs(site.folder / "people.parquet", 600, seed=11, prefix="p")
    own = {"data__pool": "people.parquet", "labeler": {"kind": "file"}}
    write_config(site.folder / "c.yaml", schedule__queries=[40], **own)
    (site.folder / "inbox").mkdir()
    shutil.copy("pool.parquet", "inbox/january.parquet")
    Path("watch.yaml").write_text(yaml.safe_dump(watch_values(every_minutes=1)))
    for words in (
        ("data", "register", "clinic", "inbox", "--epsilon", "8", "--delta", "1e-4"),
        ("deploy", "c.yaml", "watch.yaml"),
        ("allow", "c.yaml", "watch.yaml"),
    ):
        done = subprocess.run(
            [command(), *words], env=site.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done


def started(site: Site, deployment: str) -> None:
    """What Run on Prefect's page does."""
    words = [sys.executable, "-m", "prefect", "deployment", "run", deployment]
    subprocess.run(words, env=site.environment, check=True, capture_output=True)


def suspended(site: Site, name: str) -> bool:
    """Whether the run waits for people, and no process is left of it."""
    newest = site.ask("flow_runs/filter", flow_runs={"name": {"any_": [name]}}, limit=1)
    folder = CampaignFolder(Path("artifacts") / name)
    return (
        bool(newest) and newest[0]["state"]["name"] == "Suspended" and bool(waiting_phases(folder))
    )


def answer(site: Site, folder: CampaignFolder) -> None:
    """Delivers labels and leaves the rest to whoever looks."""
    ((files, _),) = waiting_phases(folder)
    with (files.query / "query.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    with Path("answers.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "label"])
        writer.writeheader()
        writer.writerows({"id": row["id"], "label": int(row["id"][-1]) % 3} for row in rows)
    words = [command(), "label", str(folder.root), "answers.csv", "--no-run"]
    done = subprocess.run(words, env=site.environment, capture_output=True, text=True)
    assert done.returncode == 0, done


def finished(folder: CampaignFolder) -> int:
    """Finished phases of a campaign."""
    return len(folder.finished_phases())


def done(name: str) -> bool:
    """Whether the watch knows that a campaign of its own is finished."""
    last = WatchFolder(Path("artifacts/watch/clinic")).read().last
    assert last is None or last.stage not in (Stage.REFUSED, Stage.STOPPED), last
    return last is not None and (last.name, last.stage) == (name, Stage.FINISHED)


def flow_names(site: Site) -> list[dict[str, str]]:
    """The flow of every run that the server lists."""
    flows = {flow["id"]: flow["name"] for flow in site.ask("flows/filter")}
    runs = site.ask("flow_runs/filter", limit=200)
    ran = [run for run in runs if run["state"]["type"] != "SCHEDULED"]
    return [{"name": flows[run["flow_id"]]} for run in ran]
