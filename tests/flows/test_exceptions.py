"""Exceptions full of secrets, raised in every task and flow: none of them reaches Prefect."""

from __future__ import annotations

import importlib
import itertools
import logging
import pickle
import re
from contextlib import contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from prefect import flow as prefect_flow
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogWorker
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_LOCAL_STORAGE_PATH,
    temporary_settings,
)

from dpal.book.book_file import BookSet
from dpal.book.cells import BookCell
from dpal.book.run_cell import CellOrder
from dpal.config.briefs import CampaignBrief, ImprovementBrief, VotesBrief, VotingBrief
from dpal.config.campaign import parse_config
from dpal.config.capc_retraining import parse_retraining
from dpal.config.improvement import parse_public
from dpal.config.pate import parse_pate
from dpal.errors import DpalError, LabelError, UnexpectedError
from dpal.files.artifacts import CampaignFolder
from tasks.boundary import errors_elsewhere, is_server_lost, public_error, reason_of
from tasks.training_pool.phase_files import TrainingOrder
from tasks.training_pool.repeatable_order import RepeatableOrder
from tests.contracts.test_tasks import FLOWS, TASKS
from tests.flows.buying import retraining_values
from tests.flows.injections import KINDS, MARKERS, Trap
from tests.flows.leaks import files_below, naming
from tests.flows.watching import small_watch

TIMES = 4  # that each task is broken, each time in another way and deeper down
INJECTIONS = 200
# What a flow calls first; it fails in the test.
FIRST = {
    "run_campaign": "watching_for_cancellation",
    "new_campaign": "require_allowed",
    "new_public": "require_allowed",
    "new_pate": "require_allowed",
    "new_vote": "require_allowed",
    "make_book": "open_book",
    "make_book_cell": "make_cell",
    "improve_model": "conduct",
    "vote_and_learn": "conduct",
    "train_phase": "following_order",
    "train_repeatable": "following_repeatable_order",
    "collect_labels": "waiting_campaigns",
    "watch": "watch_folder",
    "audit_run": "plan",
    "buy_and_learn": "prepare_to_ask",
}


def parameters(place):
    """Of each flow: what it can be started with."""
    name = {"name": "trapped", "runtime": {"artifacts": str(place / "artifacts")}}
    config = parse_config(name)
    order = TrainingOrder(config=config, phase=0, plan="", inputs=(), drawer="")
    models = RepeatableOrder(config={"kind": "pate", **name}, training="student", plan="")
    files = (place / "train.parquet", place / "test.parquet")
    cell = BookCell(digest="", table="t", row="r", column="c", set_name="s", method="private",
                    seed=0, settings={}, files=files)  # fmt: skip
    about = BookSet(train="t", pool=2, validation=1, judged=1, is_what="made up")
    return {
        "run_campaign": (config,),
        "make_book": (place / "book.yaml", place, config.runtime),
        "make_book_cell": (CellOrder(cell=cell, about=about, folder=place),),
        "new_campaign": (CampaignBrief(name="trapped", data=place / "pool.parquet"),),
        "new_public": (
            ImprovementBrief(name="trapped", campaign="first", public=place / "public.parquet"),
        ),
        "new_pate": (
            VotingBrief(
                name="trapped",
                data=place / "pool.parquet",
                public=place / "public.parquet",
                validation=place / "validation.parquet",
                why_public="made up",
            ),
        ),
        "new_vote": (VotesBrief(name="trapped", ballots=[place / "ballots.parquet"], records=9),),
        "improve_model": (parse_public(name),),
        "vote_and_learn": (parse_pate(name),),
        "train_phase": (order,),
        "train_repeatable": (models,),
        "collect_labels": (place / "artifacts",),
        "watch": (small_watch(),),
        "audit_run": (config,),
        "buy_and_learn": (parse_retraining({**retraining_values(), **name}),),
    }


@contextmanager
def logged_into(path):
    """Writes everything that this process logs into a file, tracebacks included."""
    handler = logging.FileHandler(path)
    names = (None, *(one for one in logging.root.manager.loggerDict if one.startswith("prefect")))
    listened = [logging.getLogger(one) for one in names]
    for one in listened:
        one.addHandler(handler)
    try:
        yield
    finally:
        for one in listened:
            one.removeHandler(handler)
        handler.close()


@pytest.fixture(scope="module")
def injected(prefect_api, prefect_home, tmp_path_factory):
    """Every task and flow broken several times, on a real server."""
    place, raised, kinds = tmp_path_factory.mktemp("injected"), [], itertools.cycle(KINDS)
    here = {
        PREFECT_API_URL: prefect_api,
        PREFECT_LOCAL_STORAGE_PATH: place / "storage",
        PREFECT_CLIENT_MAX_RETRIES: 30,  # so many runs at once keep its database busy: 503
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # whoever calls a flow waits for its last beat
    }

    def broken(name, fail, call):
        try:
            call()
        except BaseException as error:
            raised.append(SimpleNamespace(name=name, kind=fail.__name__, error=error))

    @prefect_flow(name="injections")
    def inject():
        for name, task in sorted(TASKS.items()):
            # A run's name is read before the task begins, from numbers of its part.
            named = str(task.task_run_name or "").count(".")
            for depth in range(named, named + TIMES):
                fail = next(kinds)
                traps = {one: Trap(depth, fail) for one in signature(task.fn).parameters}
                broken(name, fail, partial(task, **traps))

    log = place / "logged.txt"
    with pytest.MonkeyPatch.context() as patch, temporary_settings(here), logged_into(log):
        patch.chdir(place)
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        inject()
        for name, flow in sorted(FLOWS.items()):
            called = flow.fn.__name__
            for fail in itertools.islice(kinds, 2):
                with pytest.MonkeyPatch.context() as trapped:
                    module = importlib.import_module(flow.fn.__module__)
                    trapped.setattr(module, FIRST[called], Trap(0, fail))
                    broken(name, fail, partial(flow, *parameters(place)[called]))
        APILogWorker.drain_all(timeout=30)
        EventsWorker.drain_all(timeout=30)
        errors = {errors_elsewhere(), CampaignFolder(place / "artifacts" / "trapped").errors}
    written = {*files_below(prefect_home, place)}
    kept = {path for path in written if path.parent in errors}
    return SimpleNamespace(place=place, raised=raised, public=written - kept, kept=kept, log=log)


def test_every_task_and_flow_was_broken_in_many_ways(injected):
    assert len(injected.raised) >= INJECTIONS
    assert {one.name for one in injected.raised} == {*TASKS, *FLOWS}
    assert {one.kind for one in injected.raised} == {kind.__name__ for kind in KINDS}


def test_nothing_private_is_in_prefect_its_storage_or_its_logs(injected):
    """Nor anywhere else, but in the files for the owner; MLflow: see `test_tracked_run`."""
    told = naming(["unexpected error (number"], injected.public)
    assert {injected.log} < told, "the runs themselves are in the log, and in the database"
    found = {marker: naming([marker], injected.public) for marker in MARKERS}
    assert not {marker: paths for marker, paths in found.items() if paths}


def test_no_result_and_no_exception_is_persisted(injected):
    assert not list(files_below(injected.place / "storage"))


def test_what_left_is_ours_and_alone(injected):
    for one in injected.raised:
        error = one.error
        assert isinstance(error, DpalError | KeyboardInterrupt), one
        assert error.__cause__ is None and not getattr(error, "__notes__", None), one
        assert error.__suppress_context__ or error.__context__ is None, one
        for text in (str(error), repr(error), pickle.dumps(error).decode("latin-1")):
            assert not any(marker in text for marker in MARKERS), one


def test_signals_stay_what_they_are(injected):
    """An interrupt ends the process, a failed step its flow run; Prefect tells them apart."""
    # Tasks of any kind first look up which kind it is, and no trap is of one.
    of_any_kind = ("tasks.generic_steps.", "tasks.write_reports.")
    told = (one for one in injected.raised if not one.name.startswith(of_any_kind))
    kinds = {one.kind: type(one.error) for one in told}
    assert kinds["cut_short"] is KeyboardInterrupt
    assert kinds["refused"] is kinds["while_handling"] is LabelError
    assert kinds["plain"] is kinds["panicked"] is kinds["grouped"] is UnexpectedError


def test_what_happened_is_in_a_file_for_its_owner_alone(injected):
    """Also the power of the search: what it finds nowhere else, it finds there."""
    files = injected.kept
    for marker in MARKERS[:4]:
        assert naming([marker], files)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert all(path.parent.stat().st_mode & 0o777 == 0o700 for path in files)
    unexpected = [one.error for one in injected.raised if isinstance(one.error, UnexpectedError)]
    newest = unexpected[-1]
    assert newest.place in str(newest) and newest.number in Path(newest.place).name
    assert Path(newest.place) in files
    assert {path.parent.parent.name for path in files} == {"confidential", "dpal"}


def test_a_guard_that_fails_still_says_nothing(tmp_path, monkeypatch):
    """A full disk, or an exception that cannot even be printed: the sentence is the same."""

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError(MARKERS[0])

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a file"))
    (tmp_path / "a file").write_text("no folder")
    for error in (ValueError(MARKERS[0]), Unprintable(), RuntimeError(Unprintable())):
        public = public_error(error, "train_model")
        assert isinstance(public, UnexpectedError)
        assert public.place == ""
        assert re.search(r"number [0-9a-f]{8}\).*written down$", str(public))


@pytest.mark.parametrize(("status", "lost"), [(503, True), (500, True), (404, False)])
def test_a_server_that_answers_with_errors_alone_is_lost(status, lost):
    request = httpx.Request("POST", "http://127.0.0.1/api/flow_runs/")
    answer = httpx.Response(status, request=request)
    error = PrefectHTTPStatusError("no", request=request, response=answer)
    assert is_server_lost(error) is lost
    assert reason_of(error) == f"status {status}"
