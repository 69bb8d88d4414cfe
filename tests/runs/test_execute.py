"""Runs without an orchestrator: the same ledger and the same certificate as in a flow."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpal
from dpal.audit.audit_campaign_plan import Effort
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.errors import ConfigError, LabelError, LabelsPending, LedgerError, RunnerError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.execute import execute_run
from dpal.runs.host import Host
from dpal.runs.kinds import kind_of
from dpal.runs.make_report import write_reports
from flows.cli.any_settings import load_any
from tests.conftest import CLASSES, small_values, write_config
from tests.flows.voting import ballots, write_ballots

ROOT = Path(dpal.__file__).parent.parent


def story(name):
    """What the ledger holds of a run, but for salts, digests of random files, and order."""
    with closing(LedgerStore(Path("artifacts/ledger.sqlite"), create=False)) as store:
        entries = [entry for entry in store.entries() if entry.campaign == name]
    return [(entry.kind, entry.release, entry.body.get("charges"), entry.body.get("releases"))
            for entry in entries]  # fmt: skip


@pytest.mark.usefixtures("workplace")
def test_a_campaign_runs_and_its_certificate_holds():
    folder = dpal.run(dpal.settings(small_values()))
    assert len(folder.finished_phases()) == 3
    model = folder.phase(2).model
    checks = dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite"), model=model)
    assert not any_failed(checks)
    assert folder.report.is_file()
    assert folder.report_page.is_file()
    spent = dpal.account(folder)
    assert spent.name == "small"
    again = folder.certificate.read_bytes()
    dpal.run(dpal.settings(small_values()))  # everything is done
    assert folder.certificate.read_bytes() == again


@pytest.mark.slow
@pytest.mark.usefixtures("workplace", "orchestrated")
def test_the_ledger_of_a_flow_says_the_same():
    from flows.campaign import run_campaign

    execute_run(parse_config(small_values(name="here")))
    run_campaign(parse_config(small_values(name="flow")))
    assert story("here") == story("flow")
    assert len(story("here")) > 8


class Nearest:
    """Labels by a rule of one's own, and notes what it was asked."""

    def __init__(self):
        self.asked = []

    def label(self, ids):
        self.asked += ids
        return {name: int(name[-1]) % CLASSES for name in ids}


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_labeler_of_ones_own_answers_each_record_once():
    labeler, config = Nearest(), dpal.settings(small_values(labeler__kind="file"))
    with pytest.raises(LabelsPending):
        dpal.run(config)  # nobody answers
    folder = dpal.run(config, labeler=labeler)
    assert len(folder.finished_phases()) == 3
    assert len(labeler.asked) == len(set(labeler.asked)) >= 100


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (lambda ids: dict.fromkeys(ids, CLASSES), "from 0"),
        (lambda ids: dict.fromkeys(ids, "1"), "from 0"),
        (lambda ids: dict.fromkeys(ids, True), "from 0"),
        (lambda ids: dict.fromkeys(ids[1:], 0), "left out"),
        (lambda ids: None, "a dict"),
        (lambda ids: [0] * len(ids), "a dict"),
        (lambda ids: {"somebody": 0, **dict.fromkeys(ids, 0)}, "not asked for"),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_what_a_labeler_says_is_checked(answers, reason):
    labeler = SimpleNamespace(label=answers)
    config = parse_config(small_values(labeler__kind="file"))
    with pytest.raises(LabelError) as refusal:
        execute_run(config, labeler=labeler)
    assert reason in str(refusal.value)
    assert not list(Path("artifacts/small").glob("**/labels.parquet"))


@pytest.fixture
def alone(monkeypatch):
    """A process in which no flow was imported."""
    monkeypatch.setattr("dpal.runs.host._HOST", Host())


@pytest.mark.usefixtures("workplace", "alone")
def test_what_needs_a_flow_is_refused_before_anything_is_released():
    with pytest.raises(RunnerError, match="training_pool"):
        execute_run(parse_config(small_values(runtime={"training_pool": "gpu"})))
    with pytest.raises(LabelError, match=r"labeler\.kind is oracle"):
        execute_run(parse_config(small_values(name="own")), labeler=Nearest())
    dask = {"task_runner": "dask", "shards": 2}
    with pytest.raises(RunnerError, match="needs a flow"):
        execute_run(parse_config(small_values(name="dask", runtime=dask)))
    assert not Path("artifacts/dask").exists()


@pytest.mark.usefixtures("workplace")
def test_votes_are_released_once():
    file = write_ballots("ballots.parquet", ballots(1))
    privacy = {"epsilon": 8, "records": 5000}
    released = dpal.vote(file, name="votes", privacy=privacy)
    first = released.read_bytes()
    assert dpal.vote([file], name="votes", privacy=privacy) == released
    assert released.read_bytes() == first
    assert not any_failed(dpal.verify("artifacts/votes", ledger="artifacts/ledger.sqlite"))


DIGITS = """
import sys
import dpal

config = dpal.settings("flows/configs/digits.yaml", **{
    "schedule.queries": [300],
    "schedule.epochs_per_phase": 1,
    "model": {"name": "logistic"},
    "runtime.artifacts": sys.argv[1],
})
print(f"{dpal.plan(config).epsilon:.4f} of {config.privacy.epsilon:g}")
folder = dpal.run(config)
print(folder.finished_phases()[-1]["validation_accuracy"])
assert not any(check.outcome == "failed" for check in dpal.verify(folder))
"""


SMALL = """
import sys
import dpal

folder = dpal.run(dpal.settings("small.yaml"))
assert not any(check.outcome == "failed" for check in dpal.verify(folder))
print('loaded:', *{'prefect', 'mlflow', 'dvc'} & set(sys.modules))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_a_campaign_takes_no_orchestrator():
    write_config(Path("small.yaml"), schedule__queries=[])
    done = subprocess.run(
        [sys.executable, "-c", SMALL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["loaded:"]


@pytest.mark.slow
def test_the_digits_campaign_takes_fifteen_lines_and_no_orchestrator(tmp_path):
    assert len([line for line in DIGITS.splitlines() if line.strip()]) <= 15
    look = "\nprint('loaded:', *{'prefect', 'mlflow', 'dvc'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", DIGITS + look, str(tmp_path / "artifacts")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
    assert (tmp_path / "artifacts" / "digits" / "certificate.json").is_file()


def test_the_package_offers_what_it_says():
    assert set(dpal.__all__) <= set(dir(dpal))
    assert all(callable(getattr(dpal, name)) for name in dpal.__all__)
    with pytest.raises(AttributeError):
        _ = dpal.nothing


def test_settings_leave_the_mapping_alone_that_they_were_given():
    given = {"name": "clinic", "schedule": {"initial": 500}}
    config = dpal.settings(given, **{"schedule.initial": 300})
    assert isinstance(config, CampaignConfig)
    assert config.schedule.initial == 300
    assert given == {"name": "clinic", "schedule": {"initial": 500}}


def test_a_file_says_the_same_to_a_program_as_to_a_command(tmp_path: Path) -> None:
    text = "name: 2024_01\nschedule: {initial: 0500}\ndata: {label_column: 1:30}\n"
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    config = dpal.settings(tmp_path / "c.yaml")
    assert config == load_any(tmp_path / "c.yaml", [])
    assert isinstance(config, CampaignConfig)
    assert config.schedule.initial == 500  # 320 in YAML 1.1


@pytest.mark.parametrize("given", [{"name": "clinic"}, "clinic.yaml", Path("clinic.yaml"), None])
def test_what_is_no_settings_yet_is_told_what_makes_them(given: Any) -> None:
    for called in (dpal.plan, dpal.run):
        with pytest.raises(ConfigError, match=r"dpal\.settings"):
            called(given)


@pytest.mark.usefixtures("workplace")
def test_an_account_of_teachers_is_audited_and_charged_nothing():
    about = {"epsilon": 8, "records": 1000, "delta": 1e-4}
    settings = {"kind": "vote", "name": "asked", "privacy": about}
    settings["ballots"] = {"files": [write_ballots("ballots.parquet", ballots(1))]}
    config = dpal.settings(settings, **{"runtime.artifacts": "artifacts"})
    execute_run(config)
    use_cases, before = (
        kind_of(config).use_cases(),
        LedgerStore("artifacts/ledger.sqlite").entries(),
    )
    audited = use_cases.audit(use_cases.plan(config), Effort(draws=1 << 16))
    assert audited.passed, audited.failed
    assert {finding.layer.value for finding in audited.findings} == {
        "mechanism", "attack", "ledger",
    }  # fmt: skip
    assert LedgerStore("artifacts/ledger.sqlite").entries() == before


@pytest.mark.usefixtures("workplace")
def test_a_report_without_its_ledger_is_refused_and_not_written_without_a_page():
    about = {"epsilon": 8, "records": 5000}
    dpal.vote(write_ballots("ballots.parquet", ballots(1)), name="votes", privacy=about)
    folder = CampaignFolder(Path("artifacts/votes"))
    folder.report.unlink()
    Path("artifacts/ledger.sqlite").unlink()
    with pytest.raises(LedgerError):
        write_reports(folder)
    assert not folder.report.exists()
