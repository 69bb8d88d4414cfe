"""How long a training ordered from a work pool takes to begin, and its end to be noticed.

One campaign of several phases, a server and a worker of its own, all as separate processes. Times
are of Prefect's server but for the first step, which is when the ledger has its checkpoint: the
campaign persists every step.

    python -m tests.benchmarks.pool_dispatch                       # a quiet machine: 3 minutes
    python -m tests.benchmarks.pool_dispatch --cold --json cold.json
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from tests.flows.pooling import Campaign, Site, await_true, site_in

PARTS = ("taken", "running", "first step", "order to first step", "CPU of these", "end to noticed")
_SETTINGS: dict[str, Any] = {
    "schedule__initial": 100,
    "schedule__epochs_per_phase": 8,
    "runtime__training_pool": "gpu",
    "runtime__checkpoint_steps": 1,
}


def measure(folder: Path, *, phases: int, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """The parts of every phase's dispatch in seconds, CPU seconds of the worker, and the load."""
    with site_in(folder) as site:
        campaign = site.campaign("timed", **_SETTINGS | {"schedule__queries": [30] * (phases - 1)})
        worker = site.worker(options=options)
        await_true(lambda: "started!" in site.log("worker.log"), 120)
        _await_idle(worker.pid)  # it has been there for a while
        load, began = os.getloadavg()[0], _cpu(worker.pid)
        running = campaign.run()
        first, used = _first_steps(campaign, running, phases, worker.pid)
        if running.wait(600):
            raise RuntimeError(campaign.said)
        found = _parts(site, first, used)
        return {
            "phases": found,
            "load": [load, os.getloadavg()[0]],
            "worker_cpu": _cpu(worker.pid) - began,
            "worker_memory": psutil.Process(worker.pid).memory_info().rss,
        }


def _await_idle(worker: int) -> None:
    """Waits until what stands by has imported everything."""
    before = -1.0
    time.sleep(10)
    while before != (now := sum(_cpu(child.pid) for child in psutil.Process(worker).children())):
        before = now
        time.sleep(2)


def _first_steps(
    campaign: Campaign, running: Any, phases: int, worker: int
) -> tuple[dict[str, float], dict[int, list[tuple[float, float]]]]:
    """When each training's first checkpoint was seen in the ledger, and what processes computed.

    Of each of the worker's processes: times, and the CPU seconds that it had used by then.
    """
    place = campaign.site.folder / "artifacts" / "ledger.sqlite"
    seen: dict[str, float] = {}
    used: dict[int, list[tuple[float, float]]] = {}
    asked = "SELECT release FROM entries WHERE kind = 'checkpoint'"
    while running.poll() is None and len(seen) < phases:
        if place.is_file():
            try:
                with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as ledger:
                    rows = ledger.execute(asked).fetchall()
                for (release,) in rows:
                    seen.setdefault(release.partition("/")[0], time.time())
            except sqlite3.OperationalError:  # it is being made
                pass
        for child in psutil.Process(worker).children():
            with suppress(psutil.Error):
                used.setdefault(child.pid, []).append((time.time(), _cpu(child.pid)))
        time.sleep(0.05)
    return seen, used


def _parts(
    site: Site, first: dict[str, float], used: dict[int, list[tuple[float, float]]]
) -> list[dict[str, float]]:
    leader = site.leader("timed")
    waits = site.ask(
        "task_runs/filter",
        task_runs={"flow_run_id": {"any_": [leader["id"]]}, "name": {"like_": "train_on_pool"}},
    )
    noticed = sorted(_seconds(task["end_time"]) for task in waits)
    found = []
    for number, run in enumerate(reversed(site.trainings("timed"))):
        states = _states(site, run["id"])
        step = first[f"phase-{number}"]
        process = used[int(run["infrastructure_pid"])]
        found.append(
            {
                "taken": states["Pending"] - states["Scheduled"],
                "running": states["Running"] - states["Pending"],
                "first step": step - states["Running"],
                "order to first step": step - states["Scheduled"],
                "CPU of these": _by(process, step) - _by(process, states["Scheduled"]),
                "end to noticed": noticed[number] - states["Completed"],
            }
        )
    return found


def _by(process: list[tuple[float, float]], moment: float) -> float:
    """CPU seconds that a process had used by then; 0 before it was there."""
    return max((cpu for at, cpu in process if at <= moment), default=0.0)


def _states(site: Site, run: str) -> dict[str, float]:
    """When a run came into each of its states, by the state's name."""
    import httpx

    answer = httpx.get(f"{site.api}/flow_run_states/", params={"flow_run_id": run}, timeout=60)
    states = sorted(answer.json(), key=lambda state: state["timestamp"], reverse=True)
    return {state["name"]: _seconds(state["timestamp"]) for state in states}


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _cpu(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def show(found: dict[str, Any]) -> None:
    """Prints each part's median and worst."""
    print(f"{len(found['phases'])} phases, load {found['load'][0]:.1f} to {found['load'][1]:.1f}")
    for part in PARTS:
        times = [phase[part] for phase in found["phases"]]
        print(f"{part:20} median {statistics.median(times):6.2f} s, worst {max(times):6.2f} s")
    print(f"worker's own CPU {found['worker_cpu']:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument("--cold", action="store_true", help="a worker without a standby")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        options = ("--standby", "0") if asked.cold else ()
        found = measure(Path(scratch), phases=asked.phases, options=options)
    show(found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
