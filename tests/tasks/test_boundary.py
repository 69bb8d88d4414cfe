"""What leaves a task or a flow, one exception at a time (all: tests/flows/test_exceptions.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import Pause

from dpal.errors import DataError, DpalError, ServerLost, TrainingStopped, UnexpectedError
from dpal.files.artifacts import CampaignFolder
from tasks import boundary
from tests.conftest import small_values

SECRET = "patient-zq-00017"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A campaign's folder, as far as an error looks for it."""
    monkeypatch.chdir(tmp_path)
    campaign = CampaignFolder(tmp_path / "artifacts" / "small")
    campaign.root.mkdir(parents=True)
    (campaign.root / "campaign.json").write_text(json.dumps({}), encoding="utf-8")
    return campaign


def raising(error):
    def work(config):
        try:
            raise KeyError(SECRET)
        except KeyError as before:
            raise error from before

    return work


def raised_by(task, value):
    with pytest.raises(BaseException) as caught:  # also signals
        task.fn(value)
    return caught.value


@pytest.mark.parametrize("given", ["folder", "settings"])
def test_another_librarys_exception_becomes_a_number_and_a_file_for_the_owner(folder, given):
    value = folder.root if given == "folder" else small_values()
    error = raised_by(boundary.task()(raising(ValueError(f"row of {SECRET}"))), value)
    assert isinstance(error, UnexpectedError)
    assert SECRET not in str(error) and SECRET not in repr(error)
    assert error.__cause__ is error.__context__ is None
    (file,) = folder.errors.iterdir()
    assert SECRET in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o077 == 0
    assert file.stem in str(error)


def test_an_error_of_ours_leaves_as_it_is_and_alone(folder):
    ours = DataError("row {row} has no label", row=SECRET)
    error = raised_by(boundary.task()(raising(ours)), folder.root)
    assert error is ours
    assert SECRET not in str(error)
    assert error.__cause__ is error.__context__ is None
    (file,) = folder.errors.iterdir()
    assert error.kept == str(file)


@pytest.mark.parametrize("signal", [KeyboardInterrupt(SECRET), Pause("labels"), SystemExit(3)])
def test_signals_pass_and_say_nothing(folder, signal):
    error = raised_by(boundary.task()(raising(signal)), folder.root)
    assert type(error) is type(signal)
    assert SECRET not in str(error)
    assert not folder.errors.exists()


def test_an_exit_with_a_text_is_an_error_of_a_library(folder):
    error = raised_by(boundary.task()(raising(SystemExit(f"no {SECRET}"))), folder.root)
    assert isinstance(error, UnexpectedError)
    assert SECRET not in str(error)


def test_only_the_newest_files_are_kept(folder, monkeypatch):
    monkeypatch.setattr(boundary, "_MOST", 3)
    broken = boundary.task()(raising(ValueError(SECRET)))
    numbers = [raised_by(broken, folder.root) for _ in range(5)]
    kept = {path.stem for path in folder.errors.iterdir()}
    assert len(kept) == 3
    assert any(number in str(numbers[-1]) for number in kept)


def test_a_flow_ends_in_a_state_in_place_of_raising():
    failed = boundary.flow()(raising(DataError("the pool is empty"))).fn(None)
    assert (failed.name, failed.message) == ("Failed", str(DataError("the pool is empty")))
    stopped = boundary.flow()(raising(TrainingStopped("phase-1 was cancelled"))).fn(None)
    assert stopped.name == "Cancelled"
    with pytest.raises(KeyboardInterrupt):
        boundary.flow()(raising(KeyboardInterrupt())).fn(None)


@pytest.mark.usefixtures("orchestrated")
@pytest.mark.parametrize("error", [DataError("the pool is empty"), ValueError(SECRET)])
def test_the_page_of_a_run_says_a_refusal_in_its_sentence_and_not_how_it_was_called(caplog, error):
    broken = boundary.task()(raising(error))
    state: Any = boundary.flow(name="refused")(lambda: broken(None))(return_state=True)
    said = [record for record in caplog.records if record.name == "prefect.task_runs"]
    first = next(record for record in said if record.levelname == "ERROR")
    assert first.getMessage() == state.message
    assert first.exc_info is None and "\n" not in first.getMessage()


def test_a_task_that_draws_noise_is_never_tried_again_and_nothing_is_kept():
    task = boundary.releasing_task(lambda config: config)
    assert task.retries == 0
    assert task.cache_policy is NO_CACHE
    assert task.persist_result is task.log_prints is False
    patient = boundary.task(retries=3, persist_result=True)(lambda config: config)
    assert patient.retries == 3
    assert patient.persist_result is False


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ServerLost("ConnectError"), True),
        (RuntimeError("Failed to reach API at http://127.0.0.1:1/api/"), True),
        (RuntimeError("something else"), False),
        (DpalError("another"), False),
    ],
)
def test_a_server_that_is_away_is_told_from_other_errors(error, lost):
    assert boundary.is_server_lost(error) is lost
