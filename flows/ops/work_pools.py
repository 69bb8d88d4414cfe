"""Work pools of a Prefect server: made, or kept as they are."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound

from flows.ops.deployments import MARK, WorkPool, worker_command
from flows.ops.prefect_connection import DeployError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_TEMPLATES = Path(__file__).parent.parent / "pools"


class Done(StrEnum):
    """What happened to one thing."""

    MADE = "made"
    CHANGED = "changed"
    KEPT = "kept"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing on the server, and what was done about it.

    Attributes:
      kind: work pool, deployment or automation.
      name: as on the page.
      done: what happened.
      about: the most important thing to know of it.
    """

    kind: str
    name: str
    done: Done
    about: str = ""


def set_up_pool(client: SyncPrefectClient, pool: WorkPool) -> Change:
    """Makes a work pool; one that is there keeps its template, and a limit nobody asked for.

    Raises:
      DeployError: it is there as another type, or there is no template for its type.
    """
    about = f"{pool.type}, {pool.limit} at once"
    whole = None if pool.queue else pool.limit
    done = Done.KEPT
    try:
        there = client.read_work_pool(pool.name)
    except ObjectNotFound:
        wanted = WorkPoolCreate(
            name=pool.name,
            type=pool.type,
            description=f"{MARK} Start a worker: {worker_command(pool.name, pool.type)}",
            base_job_template=template_of(pool.type),
            concurrency_limit=whole,
        )
        client.create_work_pool(wanted)
        done = Done.MADE
    else:
        if there.type != pool.type:
            raise DeployError(
                f"the work pool {pool.name} is there with type {there.type}, not {pool.type}; say "
                f"--pool {pool.name}={there.type}, or remove it first: dpal deploy --remove"
            )
        limit = there.concurrency_limit
        if pool.asked and limit != whole:
            client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=whole))
            done = Done.CHANGED
        elif not pool.queue:
            about = f"{pool.type}, {'any number' if limit is None else limit} at once"
    if pool.queue:
        done, number = _queue(client, pool, pool.queue, done)
        about = f"{pool.type}, {number} campaigns at once"
    return Change(kind="work pool", name=pool.name, done=done, about=about)


def _queue(client: SyncPrefectClient, pool: WorkPool, name: str, done: Done) -> tuple[Done, int]:
    """The queue that a pool's limit is set on."""
    place = {"work_pool_name": pool.name, "name": name}
    wanted = {"concurrency_limit": pool.limit}
    try:
        answer = client.request(
            "GET", "/work_pools/{work_pool_name}/queues/{name}", path_params=place
        )
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        client.request(
            "POST",
            "/work_pools/{work_pool_name}/queues",
            path_params=place,
            json={"name": name, "priority": 2, "description": MARK, **wanted},
        )
        return Done.MADE if done is Done.MADE else Done.CHANGED, pool.limit
    limit = answer.json()["concurrency_limit"]
    # A queue that `prefect deploy` made on its way has no limit; 0 is a person's way to stop it.
    if limit == pool.limit or (limit is not None and not pool.asked):
        return done, limit
    client.request(
        "PATCH", "/work_pools/{work_pool_name}/queues/{name}", path_params=place, json=wanted
    )
    return Done.CHANGED if done is Done.KEPT else done, pool.limit


def template_of(type_: str) -> dict[str, Any]:
    """The base job template of a kind of pool, as it ships with dpal; {} for process pools."""
    if type_ == "process":
        return {}  # the server knows it
    template = _TEMPLATES / f"{type_}.json"
    if not re.fullmatch(r"[a-z-]+", type_) or not template.is_file():
        raise DeployError(
            f"there is no template for work pools of type {type_}; take process, docker or "
            "kubernetes, or make the pool yourself with `prefect work-pool create`"
        )
    return dict(json.loads(template.read_text(encoding="utf-8")))
