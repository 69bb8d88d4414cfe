"""Query, retrain, report: a real guardian and real sites, a flow that is killed, a real server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import mlflow
import pytest
import yaml
from prefect.client.orchestration import get_client

from dpal.config.capc_retraining import parse_retraining
from dpal.errors import CampaignBusy, ConfigError, DataError, VoteAborted
from dpal.files.dvc_pointers import pointed_at
from dpal.runs.capc_retraining import begin_retraining, buy_labels
from dpal.runs.site_model import balanced_accuracy, read_labeled
from dpal.runs.sites_parties import load_site_model, only_asker
from flows.capc import buy_and_learn
from flows.cli.any_settings import load_any
from flows.ops.deployments import from_file
from tests.capc.demos import copies_of_a_demo
from tests.capc.test_commands import ledger_of, party, wait_for
from tests.conftest import allow
from tests.flows.buying import PUBLIC, retraining_values, write_retraining_settings

# The command as it is, but for one step, in whose place the process is killed.
_KILLED = """
import os, signal, sys
import flows.capc
from flows.cli.main import main

setattr(flows.capc, sys.argv.pop(1), lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
main()
"""
RESERVED_ONCE = [("open", ""), ("hold", ""), ("reserve", "votes/1"), ("commit", "votes/1")]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copies_of_a_demo(tmp_path_factory.mktemp("made") / "demo")


@pytest.fixture
def demo(copied, tmp_path):
    return copied(tmp_path / "demo")


def charged(demo):
    return [(kind.value, release) for kind, release in ledger_of(demo)]


def folder_of(demo) -> Path:
    return demo.querier.parent / "artifacts" / "bought"


@contextlib.contextmanager
def all_sites(demo):
    """A guardian and all sites, as processes."""
    with contextlib.ExitStack() as running:
        running.enter_context(party("guardian", demo.guardian))
        for file in demo.sites.values():
            running.enter_context(party("site", file))
        wait_for(demo.guardian.with_suffix(".log"), "(5 of 5 sites)")
        yield


@pytest.mark.slow
def test_killed_after_the_answers_it_goes_on_and_nothing_is_charged_twice(demo, dpal, prefect_api):
    file = write_retraining_settings(demo)
    with all_sites(demo):
        for step in ("learn", "track_retraining"):
            killed = subprocess.run(
                [sys.executable, "-c", _KILLED, step, "capc", "retrain", "--config", str(file)],
                env={**os.environ, "PREFECT_API_URL": prefect_api}, check=False,
                capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
            assert charged(demo) == RESERVED_ONCE
    answers = demo.answers.read_bytes()
    # No site and no guardian is there any more: nobody could be asked.
    done = dpal("capc", "retrain", "--config", str(file))
    assert done.returncode == 0, done.stderr
    assert demo.answers.read_bytes() == answers
    assert charged(demo) == RESERVED_ONCE
    folder = folder_of(demo)
    assert done.stdout.splitlines()[-1] == str(folder)
    facts = json.loads((folder / "retrained" / "retraining.json").read_text())
    require_told(facts, folder)
    require_tracked_once(facts, folder)
    assert dpal("capc", "retrain", "--config", str(file)).returncode == 0
    require_tracked_once(facts, folder)


def require_told(facts, folder):
    """Pages have the figures that the model reaches, and the model itself is confidential."""
    place = folder.parent.parent
    model = load_site_model(folder / "confidential" / "retrained" / "model.safetensors")
    config = yaml.safe_load((place / "retrain.yaml").read_text())
    retraining = begin_retraining_in(place, config)
    test = read_labeled(place / "test.parquet", retraining.terms)
    after = balanced_accuracy(model, test, retraining.terms)
    assert facts["figures"]["after"] == pytest.approx(after)
    assert facts["figures"]["before"] != after and (facts["answers"], facts["records"]) == (12, 40)
    for name in ("report.md", "report.html"):
        page = (folder / "retrained" / name).read_text(encoding="utf-8")
        assert f"{100 * after:.2f} %" in page and PUBLIC in page and "<script" not in page
    assert not list((folder / "retrained").rglob("*.safetensors"))
    assert pointed_at(folder / "retrained") and pointed_at(folder / "confidential" / "retrained")


def begin_retraining_in(place, values):
    return begin_retraining(parse_retraining(values, place))


def require_tracked_once(facts, folder):
    mlflow.set_tracking_uri(f"sqlite:///{folder.parent.resolve() / 'mlflow.sqlite'}")
    [run] = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    assert run.info.status == "FINISHED" and run.data.tags["dpal.phase"] == "all"
    told = run.data.metrics["test_balanced_accuracy_after"]
    assert told == pytest.approx(facts["figures"]["after"])
    assert run.data.params["answers"] == "12"
    assert run.data.tags["dvc.md5"] == pointed_at(folder / "retrained")


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_without_a_guardian_it_is_one_sentence_and_nothing_is_asked(demo, dpal):
    file = write_retraining_settings(demo)
    done = dpal("capc", "retrain", "--config", str(file))
    assert done.returncode == 2
    [line] = [one for one in done.stderr.splitlines() if one.startswith("dpal: ")]
    assert "127.0.0.1:" in line and "Traceback" not in done.stdout + done.stderr
    assert not demo.certificate.exists() and not (folder_of(demo) / "retrained").exists()
    with pytest.raises(VoteAborted):
        buy_and_learn(yaml.safe_load(file.read_text()) | paths_of(demo))


def paths_of(demo):
    """Settings as a deployment has them: with paths from the root."""
    config = begin_retraining_in(
        demo.querier.parent, yaml.safe_load((demo.querier.parent / "retrain.yaml").read_text())
    ).config
    return config.model_dump(mode="json")


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_figures_of_private_records_stay_with_their_owner(demo):
    file = write_retraining_settings(demo, why_own_public="", name="quiet")
    with all_sites(demo):
        state = buy_and_learn(paths_of(demo), return_state=True)
    folder = file.parent / "artifacts" / "quiet"
    facts = json.loads((folder / "retrained" / "retraining.json").read_text())
    assert facts["figures"] == {} and facts["judged"]
    owner = (folder / "confidential" / "retrained" / "report.md").read_text()
    mlflow.set_tracking_uri(f"sqlite:///{folder.parent / 'mlflow.sqlite'}")
    [run] = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    with get_client(sync_client=True) as client:
        [page] = [one.data for one in client.read_artifacts() if str(one.key) == "capc-quiet"]
    told = [str(page), str(state.message), run.data.tags["mlflow.note.content"],
            *(path.read_text() for path in (folder / "retrained").iterdir())]  # fmt: skip
    figures = set(re.findall(r"\d+\.\d\d(?= %)", owner))
    assert len(figures) == 2
    assert not [figure for figure in figures for text in told if figure in text]
    assert run.data.metrics.keys() == {"vote_epsilon"}


def test_what_cannot_be_used_is_refused_before_anything_is_asked(demo):
    file = write_retraining_settings(demo)
    values = yaml.safe_load(file.read_text())
    for key in ("queries", "records", "test", "key_folder"):
        with pytest.raises(DataError):
            begin_retraining_in(file.parent, {**values, key: "missing.parquet"})
    with pytest.raises(DataError) as refused:
        begin_retraining_in(file.parent, {**values, "records": "test.parquet"})
    assert "400" in refused.value.for_owner() and "400" not in str(refused.value)


def test_figures_are_told_where_own_and_test_records_are_public():
    for test, own in product(("", "published"), repeat=2):
        values = retraining_values(why_public=test, why_own_public=own)
        assert parse_retraining(values).figures_are_public == bool(test and own)


def test_two_that_ask_for_the_same_answers_at_once_are_one(demo):
    retraining = begin_retraining_in(
        demo.querier.parent, yaml.safe_load(write_retraining_settings(demo).read_text())
    )
    with only_asker(demo.answers), pytest.raises(CampaignBusy):
        buy_labels(retraining, print)


def test_settings_become_a_deployment_and_an_allow_list(demo, monkeypatch):
    file = write_retraining_settings(demo)
    monkeypatch.chdir(file.parent)
    deployment = from_file(Path("retrain.yaml"))
    assert deployment.full_name == "capc/bought"
    assert deployment.parameters["config"]["queries"] == "queries.parquet"
    listed = allow(load_any(file), file=file.parent / "list" / "allow.yaml").read_text()
    for key in ("capc.queries", "capc.records", "capc.answers", "capc.key_folder", "capc.vote"):
        assert key in listed


def test_who_asks_must_be_named():
    values = retraining_values()
    values.pop("querier")
    with pytest.raises(ConfigError, match="querier"):
        parse_retraining(values)
