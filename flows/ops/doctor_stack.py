"""Are the servers, pools and databases that campaigns need there and alive? Changes nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from dpal.config.campaign import CampaignConfig
from dpal.errors import DpalError, LedgerMissing
from dpal.runs.labelers import labeler_of
from flows.ops.deployments import (
    CAMPAIGNS,
    HEARTBEAT_SECONDS,
    TRAINING,
    usual,
    version,
    worker_command,
)
from flows.ops.diagnosis import Diagnosis
from flows.ops.doctor_access import mlflow_doors

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_LITTLE_DISK = 5 << 30
_OLDEST_POSTGRES = 14
_CLOCK_SECONDS = 5.0
_MLFLOW_SECONDS = 10.0
_DEPLOY = "run: dpal deploy"


def prefect_parts(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Pools, their workers, deployments and the automation, where a Prefect server is named."""
    from flows.ops.prefect_connection import prefect_server

    if not os.environ.get("PREFECT_API_URL"):
        return
    try:
        with prefect_server() as client:
            yield from _pools(client, config)
            yield from _deployments(client, config)
            yield _automation(client)
            yield _desk(client)
    except DpalError as error:
        yield Diagnosis("prefect", str(error), "correct that first; the rest was not looked at")


def _pools(client: SyncPrefectClient, config: CampaignConfig) -> Iterator[Diagnosis]:
    from prefect.client.schemas.objects import WorkerStatus
    from prefect.exceptions import ObjectNotFound

    for name in dict.fromkeys([CAMPAIGNS, config.runtime.training_pool or TRAINING]):
        what = f"pool {name}"
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound:
            yield Diagnosis(what, "is not there", _DEPLOY)
            continue
        if pool.is_paused:
            yield Diagnosis(what, "is paused", f"prefect work-pool resume {name}")
            continue
        online = [
            worker
            for worker in client.read_workers_for_work_pool(name, offset=0, limit=200)
            if worker.status == WorkerStatus.ONLINE
        ]
        limit = pool.concurrency_limit
        if name == CAMPAIGNS:  # short runs never wait behind campaigns
            limit = _limit_of_queue(client, name)
        at_once = "any number" if limit is None else f"{limit}"
        state = f"{pool.type}, {at_once} at once, workers online: {len(online)}"
        advice = f"start one: {worker_command(name, pool.type)}"
        yield Diagnosis(what, state, "" if online else advice)


def _limit_of_queue(client: SyncPrefectClient, pool: str) -> int | None:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_work_queue_by_name(CAMPAIGNS, work_pool_name=pool).concurrency_limit
    except ObjectNotFound:
        return None


def _deployments(client: SyncPrefectClient, config: CampaignConfig) -> Iterator[Diagnosis]:
    from prefect.exceptions import ObjectNotFound

    from flows.ops.deployments import pools_of

    named = config.runtime.training_pool
    wanted = usual(pools_of({named: "process"} if named else {}, {}))
    missing, old, deaf = [], [], []
    for deployment in wanted:
        try:
            there = client.read_deployment_by_name(deployment.full_name)
        except ObjectNotFound:
            missing.append(deployment.full_name)
            continue
        if there.version != version():
            old.append(f"{deployment.full_name} ({there.version})")
        told = there.job_variables.get("env") or {}
        beat = str(told.get("PREFECT_FLOWS_HEARTBEAT_FREQUENCY"))
        if not beat.isdecimal() or int(beat) > 2 * HEARTBEAT_SECONDS:
            deaf.append(deployment.full_name)
    trouble = [
        f"missing: {', '.join(missing)}" if missing else "",
        f"not of version {version()}: {', '.join(old)}" if old else "",
    ]
    state = "; ".join(filter(None, trouble)) or f"all {len(wanted)}, of version {version()}"
    yield Diagnosis("deployments", state, _DEPLOY if missing or old else "")
    if deaf:
        yield Diagnosis("heartbeat", f"off: {', '.join(deaf)}", _DEPLOY)
    elif len(missing) < len(wanted):
        yield Diagnosis("heartbeat", f"every {HEARTBEAT_SECONDS} s")


def _automation(client: SyncPrefectClient) -> Diagnosis:
    from prefect.client.schemas.sorting import AutomationSort

    from flows.ops.automations import SILENT, crash_silent_runs, says_the_same

    automations = client.read_automations(sort=AutomationSort.NAME_ASC, limit=200)
    ours = [automation for automation in automations if automation.name == SILENT]
    if not ours:
        return Diagnosis("automation", f"{SILENT!r} is not there", _DEPLOY)
    if not ours[0].enabled:
        return Diagnosis("automation", f"{SILENT!r} is off", "switch it on under Automations")
    if not says_the_same(ours[0], crash_silent_runs()):
        return Diagnosis("automation", f"{SILENT!r} is another one", _DEPLOY)
    return Diagnosis("automation", "runs that fall silent are crashed after 90 s")


def _desk(client: SyncPrefectClient) -> Diagnosis:
    """Whether somebody notices labels and new files."""
    from flows.ops.watch_labels_and_files import ALIVE_SECONDS, VARIABLE

    advice = "start one where runs work: dpal desk (dpal serve does)"
    told = client.read_variable_by_name(VARIABLE)
    if told is None or not isinstance(told.value, dict):
        return Diagnosis("desk", "nobody notices labels and new files", advice)
    where = f"{told.value['folder']} on {told.value['machine']}"
    ago = datetime.now(UTC) - datetime.fromisoformat(told.value["looked"])
    if ago.total_seconds() > 3 * ALIVE_SECONDS:
        minutes = ago.total_seconds() / 60
        return Diagnosis("desk", f"{where} was looked after last {minutes:.0f} min ago", advice)
    return Diagnosis("desk", f"looks after {where}")


def mlflow_login(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Whether MLflow lets us in, where it is a server."""
    from tasks.tracking.mlflow_connection import tracking_uri, without_password

    uri = tracking_uri(config.runtime)
    if not uri.startswith("http"):
        yield Diagnosis("mlflow", f"{without_password(uri)}, no server")
        return
    name = os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    shown = without_password(uri)
    path = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search"
    try:
        login = (name, password) if name else None
        answer = httpx.get(path, params={"max_results": 1}, auth=login, timeout=_MLFLOW_SECONDS)
    except httpx.ReadTimeout:  # it took the question
        state = f"{shown} is there, and has not answered in {_MLFLOW_SECONDS:g} s"
        yield Diagnosis("mlflow", state, "it is busy or stuck: wait and ask again, or see its log")
        return
    except httpx.HTTPError as error:
        state = f"{shown} does not answer ({type(error).__name__})"
        yield Diagnosis("mlflow", state, "start it, or set runtime.mlflow_uri: null")
        return
    if answer.status_code in (401, 403):
        advice = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        yield Diagnosis("mlflow", f"{shown} does not let us in ({answer.status_code})", advice)
    elif not answer.is_success:
        yield Diagnosis("mlflow", f"{shown} answers {answer.status_code}", "look into its log")
    else:
        yield Diagnosis("mlflow", f"{shown} answers" + (f", as {name}" if name else ""))
        yield from mlflow_doors(uri, login)
        yield from _clock(answer)


def ledger(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Whether the ledger can be read, is whole, and is the newest that this machine knows."""
    from dpal.runs.open_ledger import open_ledger

    runtime = config.runtime
    if runtime.ledger:
        yield from _postgres(runtime.ledger)
    try:
        store = open_ledger(runtime, create=False)
    except LedgerMissing:
        yield Diagnosis("ledger", "none yet; the first campaign makes it")
        return
    except DpalError as error:
        yield Diagnosis("ledger", str(error), "docs/ledger.md says what to do")
        return
    try:
        count = len(store.verified())
        yield Diagnosis("ledger", f"{store.name}: {count:,} entries, whole and anchored here")
    except DpalError as error:
        yield Diagnosis("ledger", str(error), "docs/ledger.md says what to do")
    finally:
        store.close()


def _postgres(url: str) -> Iterator[Diagnosis]:
    place = sa.make_url(url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(place, connect_args={"connect_timeout": 10})
    try:
        with engine.connect() as connection:
            said = str(connection.scalar(sa.text("SHOW server_version")))
            connections = int(str(connection.scalar(sa.text("SHOW max_connections"))))
    except (SQLAlchemyError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        advice = "check its address, ~/.pgpass or PGPASSWORD; pip install 'dpal[postgres]'"
        yield Diagnosis("postgres", reason, advice)
        return
    finally:
        engine.dispose()
    major = int(said.split(".")[0].split()[0])
    advice = f"use {_OLDEST_POSTGRES} or newer" if major < _OLDEST_POSTGRES else ""
    yield Diagnosis("postgres", f"version {said}, {connections} connections", advice)


def places(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Store and DVC remote, looked at without a trace; whether they take files shows a run."""
    from tasks.version_with_dvc import what_dvc_lacks_for  # loads much that may be broken

    runtime = config.runtime
    for what, place in (("store", runtime.store), ("dvc remote", runtime.dvc_remote)):
        if place:
            yield _place(what, place)
    if lack := what_dvc_lacks_for(runtime.dvc_remote or ""):
        yield Diagnosis("dvc", f"its remote {lack[0]}", lack[1])
    free = shutil.disk_usage(_existing(runtime.artifacts)).free
    advice = "make room: a full disk stops campaigns (nothing is lost)"
    yield Diagnosis("disk", f"{free >> 30} GiB free", advice if free < _LITTLE_DISK else "")


def _place(what: str, place: str) -> Diagnosis:
    """A folder is asked for the right to write, a bucket for the right to list."""
    import fsspec

    if "://" not in place:
        folder = _existing(Path(place))
        fine = os.access(folder, os.W_OK)
        state = f"{place} {'can' if fine else 'cannot'} be written"
        return Diagnosis(what, state, "" if fine else "choose another folder, or ask its owner")
    parts = urlsplit(place)
    try:
        files, key = fsspec.core.url_to_fs(place)
        files.invalidate_cache()
        files.ls(key.split("/")[0], detail=False) if parts.scheme != "file" else files.info("/")
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        advice = "check the address and the keys (AWS_ACCESS_KEY_ID ...); pip install 'dpal[s3]'"
        return Diagnosis(what, f"{place} does not open ({reason})", advice)
    return Diagnosis(what, f"{place} opens")


def labeler(config: CampaignConfig) -> Iterator[Diagnosis]:
    """Whatever the labeler needs that settings name, such as a server that answers."""
    for state, advice in labeler_of(config.labeler).findings(config.labeler):
        yield Diagnosis(config.labeler.kind.replace("_", " "), state, advice)


def prefect_clock() -> Iterator[Diagnosis]:
    """Whether this machine and the Prefect server agree on the time: heartbeats depend on it."""
    url = os.environ.get("PREFECT_API_URL")
    if url:
        from flows.ops.prefect_connection import key_header

        try:
            yield from _clock(httpx.get(f"{url}/health", headers=key_header(url), timeout=5))
        except httpx.HTTPError:
            return


def _clock(answer: httpx.Response) -> Iterator[Diagnosis]:
    said = answer.headers.get("date")
    if not said:
        return
    apart = abs((datetime.now(UTC) - parsedate_to_datetime(said)).total_seconds())
    advice = "set both clocks by NTP" if apart > _CLOCK_SECONDS else ""
    where = urlsplit(str(answer.url)).netloc
    yield Diagnosis("clock", f"{apart:.0f} s from {where} ({time.tzname[0]})", advice)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    whole = folder.expanduser().resolve()
    return next(place for place in (whole, *whole.parents) if place.exists())
