"""Makes a Prefect server know of dpal, and takes it away again. Doing it twice changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from prefect import Flow
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import (
    ConcurrencyLimitStrategy,
    ConcurrencyOptions,
    DeploymentSchedule,
)
from prefect.client.schemas.schedules import (
    SCHEDULE_TYPES,
    CronSchedule,
    IntervalSchedule,
    RRuleSchedule,
)
from prefect.client.schemas.sorting import AutomationSort
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from flows.ops.automations import (
    SILENT,
    TELL,
    crash_silent_runs,
    says_the_same,
    tell_people,
)
from flows.ops.deployments import (
    ENVIRONMENT,
    MARK,
    TAG,
    Deployment,
    WorkPool,
    version,
)
from flows.ops.deployments import DeploymentSchedule as WantedSchedule
from flows.ops.prefect_connection import DeployError
from flows.ops.run_flow import module_of
from flows.ops.work_pools import Change, Done, set_up_pool

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.events.schemas.automations import Automation, AutomationCore

_ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)  # intervals count from here, whoever deploys
_OURS = "dpal"  # the schedule of a deployment that its settings ask for
_PAGE = 200  # as many as the server gives at a time
_CANCEL_NEW = ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


def set_up(
    client: SyncPrefectClient,
    pools: Sequence[WorkPool],
    deployments: Sequence[Deployment],
    notify: str | None = None,
) -> list[Change]:
    """Brings pools, deployments and automations into the wanted state.

    Args:
      client: connection to the server.
      pools: wanted work pools; existing ones keep their template, and a limit nobody asked for.
      deployments: wanted deployments; a schedule that was switched off stays off, and one that a
        person added stays.
      notify: block TYPE/NAME through which people are told of lost runs; None leaves it as it is.

    Raises:
      DeployError: a pool is there as another type, or the block is not there.
    """
    block = _block(client, notify) if notify else None
    done = [set_up_pool(client, pool) for pool in pools]
    done += [_deployment(client, deployment) for deployment in deployments]
    done.append(_automation(client, crash_silent_runs()))
    if block is not None:
        done.append(_automation(client, tell_people(block)))
    return done


def take_down(client: SyncPrefectClient, only: Sequence[Deployment] = ()) -> list[Change]:
    """Removes what `set_up` made; with `only`, no more than those deployments.

    A work pool that other deployments use stays.
    """
    names = {deployment.full_name for deployment in only}
    done, left = [], set()
    flows = {flow.id: flow.name for flow in _all(client.read_flows)}
    for there in _all(client.read_deployments):
        name = f"{flows.get(there.flow_id)}/{there.name}"
        if _is_of_dpal(there) and (not names or name in names):
            client.delete_deployment(there.id)
            done.append(Change(kind="deployment", name=name, done=Done.REMOVED))
        else:
            left.add(there.work_pool_name)
    if names:
        return done
    for automation in _automations(client):
        if automation.name in (SILENT, TELL):
            client.delete_automation(automation.id)
            done.append(Change(kind="automation", name=automation.name, done=Done.REMOVED))
    for pool in client.read_work_pools(limit=_PAGE, offset=0):
        if MARK not in (pool.description or ""):
            continue
        if pool.name in left:
            about = "other deployments use it"
            done.append(Change(kind="work pool", name=pool.name, done=Done.KEPT, about=about))
            continue
        client.delete_work_pool(pool.name)
        done.append(Change(kind="work pool", name=pool.name, done=Done.REMOVED))
    return done


def in_words(schedules: Sequence[DeploymentSchedule | DeploymentScheduleCreate]) -> str:
    """When a deployment runs by itself, as its page shows it; empty where it never does.

    Args:
      schedules: as the server has them, or is to have them.
    """
    return " and ".join(
        f"{_rhythm(each.schedule)}{'' if each.active else ' (switched off)'}" for each in schedules
    )


def _rhythm(schedule: SCHEDULE_TYPES) -> str:
    zone = getattr(schedule, "timezone", None) or "UTC"
    if isinstance(schedule, IntervalSchedule):
        seconds = schedule.interval.total_seconds()
        every = "minute" if seconds == 60 else f"{seconds / 60:g} minutes"
        return f"every {every} ({zone})"
    if isinstance(schedule, CronSchedule):
        return f"by cron {schedule.cron} ({zone})"
    if isinstance(schedule, RRuleSchedule):
        return f"by rrule {' '.join(schedule.rrule.split())} ({zone})"
    return "at no time"


def _deployment(client: SyncPrefectClient, wanted: Deployment) -> Change:
    import_module(module_of(wanted.entrypoint))  # before Prefect looks for it in this folder
    flow: Flow[..., Any] = load_flow_from_entrypoint(wanted.entrypoint, use_placeholder_flow=False)
    schema = json.loads(json.dumps(parameter_schema(flow).model_dump(exclude_unset=True)))
    facts: dict[str, Any] = {
        "version": version(),
        "description": wanted.about,
        "tags": [TAG],
        "parameters": dict(wanted.parameters),
        "entrypoint": wanted.entrypoint,
        "pull_steps": wanted.pull_steps,
        "job_variables": {"env": dict(ENVIRONMENT)},
        "parameter_openapi_schema": schema,
        "work_pool_name": wanted.pool,
        "work_queue_name": wanted.queue or "default",
    }
    own = [_schedule(wanted.schedule)] if wanted.schedule else []
    theirs: list[DeploymentScheduleCreate] = []
    before = ""
    try:
        there = client.read_deployment_by_name(wanted.full_name)
    except ObjectNotFound:
        done = Done.MADE
    else:
        made = [each for each in there.schedules if _is_ours(each, own + _of_settings(there))]
        theirs = [_again(each) for each in there.schedules if each not in made]
        same_time = _times(made) == _times(own)
        same = (there.global_concurrency_limit is not None) is wanted.alone
        if same and same_time and all(getattr(there, key) == value for key, value in facts.items()):
            return _told(wanted, Done.KEPT, there.schedules)
        before = "" if same_time else in_words(made)
        if made:  # written anew with the rest: switched off stays so, also at another time
            active = any(each.active for each in made)
            own = [wish.model_copy(update={"active": active}) for wish in own]
        done = Done.CHANGED
    schedules = own + theirs
    client.create_deployment(
        flow_id=client.create_flow(flow),
        name=wanted.name,
        schedules=schedules,
        enforce_parameter_schema=True,
        concurrency_limit=1 if wanted.alone else None,
        concurrency_options=_CANCEL_NEW if wanted.alone else None,
        **facts,
    )
    return _told(wanted, done, schedules, before)


def _told(
    wanted: Deployment,
    done: Done,
    schedules: Sequence[DeploymentSchedule | DeploymentScheduleCreate],
    before: str = "",
) -> Change:
    """What became of a deployment, and when it runs by itself: as the server has it."""
    about = ", ".join(filter(None, [f"pool {wanted.pool}", in_words(schedules)]))
    about += f"; no longer {before}" if before else ""
    return Change(kind="deployment", name=wanted.full_name, done=done, about=about)


def _automation(client: SyncPrefectClient, wanted: AutomationCore) -> Change:
    about = {SILENT: "after 90 s without a heartbeat", TELL: "by the block you named"}[wanted.name]
    existing = [automation for automation in _automations(client) if automation.name == wanted.name]
    if not existing:
        client.create_automation(wanted)
        return Change(kind="automation", name=wanted.name, done=Done.MADE, about=about)
    for double in existing[1:]:
        client.delete_automation(double.id)
    if says_the_same(existing[0], wanted):
        done = Done.KEPT if len(existing) == 1 else Done.CHANGED
        if not existing[0].enabled:
            about = "switched off by a person"
        return Change(kind="automation", name=wanted.name, done=done, about=about)
    client.update_automation(
        existing[0].id, wanted.model_copy(update={"enabled": existing[0].enabled})
    )
    return Change(kind="automation", name=wanted.name, done=Done.CHANGED, about=about)


def _automations(client: SyncPrefectClient) -> list[Automation]:
    return client.read_automations(sort=AutomationSort.NAME_ASC, limit=_PAGE)


def _block(client: SyncPrefectClient, name: str) -> Any:
    """The id of a notification block."""
    for block in client.read_block_documents(limit=_PAGE, offset=0, include_secrets=False):
        kind = block.block_type.slug if block.block_type else ""
        if name in (f"{kind}/{block.name}", block.name):
            return block.id
    raise DeployError(
        f"there is no block {name} on this Prefect server; make one on its page under Blocks "
        "(Slack Webhook, Custom Webhook, Sendgrid Email ...), nothing was changed"
    )


def _schedule(schedule: WantedSchedule) -> DeploymentScheduleCreate:
    if schedule.interval is not None:
        return DeploymentScheduleCreate(
            schedule=IntervalSchedule(
                interval=schedule.interval, anchor_date=_ANCHOR, timezone="UTC"
            ),
            slug=_OURS,
        )
    assert schedule.cron is not None  # noqa: S101
    return DeploymentScheduleCreate(
        schedule=CronSchedule(cron=schedule.cron, timezone=schedule.timezone), slug=_OURS
    )


def _is_ours(there: DeploymentSchedule, own: Sequence[DeploymentScheduleCreate]) -> bool:
    """Whether a schedule is of the settings, and not one that a person added.

    Those of earlier versions have no name: they are known by what they say.

    Args:
      there: as the server has it.
      own: what the settings ask for, and what they asked for when they were deployed last.
    """
    if there.slug is not None:
        return there.slug == _OURS
    anchor = getattr(there.schedule, "anchor_date", None)
    return anchor == _ANCHOR or _times([there])[0] in _times(own)


def _of_settings(there: DeploymentResponse) -> list[DeploymentScheduleCreate]:
    """The schedule that the settings asked for with which a deployment was made."""
    config = there.parameters.get("config")
    runtime = config.get("runtime") if isinstance(config, dict) else None
    if not isinstance(runtime, dict) or not runtime.get("cron"):
        return []
    zone = runtime.get("timezone") or "UTC"
    return [_schedule(WantedSchedule(cron=runtime["cron"], timezone=zone))]


def _is_of_dpal(there: DeploymentResponse) -> bool:
    """Whether a deployment is one of ours: of a checkout, or of a wheel, where all lies in dpal."""
    entrypoint = str(there.entrypoint).removeprefix("dpal.")
    return TAG in there.tags and entrypoint.startswith("flows.")


def _again(there: DeploymentSchedule) -> DeploymentScheduleCreate:
    """A person's schedule, as it is written with the rest."""
    return DeploymentScheduleCreate(
        schedule=there.schedule,
        active=there.active,
        max_scheduled_runs=there.max_scheduled_runs,
        parameters=there.parameters,
        slug=there.slug,
    )


def _times(
    schedules: Sequence[DeploymentSchedule | DeploymentScheduleCreate],
) -> list[dict[str, Any]]:
    return [each.schedule.model_dump(mode="json") for each in schedules]


def _all(read: Callable[..., list[Any]]) -> Iterator[Any]:
    """Everything of a kind, page by page."""
    offset = 0
    while page := read(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)
