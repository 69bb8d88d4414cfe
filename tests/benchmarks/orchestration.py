"""What orchestration adds to the sample campaign: Prefect, MLflow and DVC beside the computing.

Three processes run the same campaign, each in a folder of its own: one that computes alone
(the bodies of the tasks that compute, in order), `dpal run` with the temporary server of
Prefect, and the flow beside a running server, where the time between the bodies of tasks is
measured. CPU time is of a process and of all that it started: on a busy machine it says more
than wall time.

    python -m tests.benchmarks.orchestration                 # a quiet machine: 5 minutes
    python -m tests.benchmarks.orchestration --rounds 3 --json overhead.json
"""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "flows" / "configs" / "digits.yaml"
TARGETS = (
    "targets: whole with the temporary server at most 1.1 x alone + 10 s; at most 50 ms between "
    "tasks beside a running server"
)
_QUIET = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_LOGGING_LEVEL": "CRITICAL"}


def seconds_of(command: list[str], place: Path, **environment: str) -> tuple[dict[str, float], str]:
    """Wall and CPU seconds of a command and of all that it started; and what it printed last."""
    before, began = _cpu_of_children(), time.perf_counter()
    done = subprocess.run(
        command, cwd=place, env={**os.environ, **_QUIET, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    wall = time.perf_counter() - began
    lines = done.stdout.strip().splitlines()
    return {"wall": wall, "cpu": _cpu_of_children() - before}, lines[-1] if lines else ""


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compute_alone(file: Path) -> None:
    """The bodies of the tasks that compute, without flow, server, tracking and versioning."""
    from dpal.ledger.folder_lock import lock_folder
    from dpal.runs.kinds import folder_of
    from flows.cli.read_settings import load_config
    from tasks.campaign import (
        ask_labeler,
        certify,
        close_phase,
        end_campaign,
        hold_budget,
        measure,
        merge_labels,
        prepare_campaign,
        select_records,
        train_model,
    )
    from tasks.write_reports import write_report

    config = load_config(file, [])
    with lock_folder(folder_of(config).root):
        campaign = prepare_campaign.fn(config)
        hold_budget.fn(campaign)
        for phase in campaign.plan.phases:
            select_records.fn(campaign, phase)
            ask_labeler.fn(campaign, phase)
            merge_labels.fn(campaign, phase)
            train_model.fn(campaign, phase)
            close_phase.fn(campaign, phase, measure.fn(campaign, phase))
        end_campaign.fn(campaign)
        certify.fn(campaign)
        write_report.fn(campaign)


def flow_between_tasks(file: Path) -> dict[str, Any]:
    """Runs the flow and measures what its tasks' bodies do not take, per task.

    Drawing the budget for the flow run's page is work like that of a task, and counted so.
    """
    from prefect import Task

    import tasks
    import tasks.campaign_page
    from flows.campaign import run_campaign
    from flows.cli.read_settings import load_config

    bodies: dict[str, list[float]] = {}
    clocks = (time.perf_counter, time.process_time)

    def timed(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def run(*arguments: Any, **options: Any) -> Any:
            began = [clock() for clock in clocks]
            try:
                return body(*arguments, **options)
            finally:
                spent = [clock() - start for clock, start in zip(clocks, began, strict=True)]
                kept = bodies.setdefault(name, [0.0, 0.0, 0.0])
                bodies[name] = [a + b for a, b in zip(kept, [1.0, *spent], strict=True)]

        return run

    seen: set[int] = set()  # a task is a name of every module that calls it
    for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Task) and id(value) not in seen:
                seen.add(id(value))
                value.fn = timed(name, value.fn)
    vars(tasks.campaign_page)["as_png"] = timed("drawing", vars(tasks.campaign_page)["as_png"])
    config = load_config(file, [])
    began = [clock() for clock in clocks]
    run_campaign(config)
    wall, cpu = (clock() - start for clock, start in zip(clocks, began, strict=True))
    _, inside, inside_cpu = (sum(column) for column in zip(*bodies.values(), strict=True))
    count = sum(calls for name, (calls, *_) in bodies.items() if name != "drawing")
    return {
        "tasks": count,
        "wall_between": (wall - inside) / count,
        "cpu_between": (cpu - inside_cpu) / count,
        "bodies": dict(sorted(bodies.items())),
    }


@contextmanager
def server(home: Path) -> Iterator[str]:
    """A running Prefect server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    started = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)],
        env={**os.environ, **_QUIET, "PREFECT_HOME": str(home)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _await(url, started)
        yield url
    finally:
        started.terminate()
        started.wait(60)


def _await(url: str, started: subprocess.Popen[bytes]) -> None:
    import httpx

    for _ in range(600):
        if started.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/health", timeout=2).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError("Prefect's server did not start")


def measure(file: Path, *, rounds: int) -> dict[str, Any]:
    """All figures, the median of the rounds; the first start of a Prefect home by itself."""
    us = [sys.executable, "-m", "tests.benchmarks.orchestration", "--file", str(file)]
    whole = [sys.executable, "-m", "flows.cli.main", "run", str(file)]
    found: dict[str, Any] = {"alone": [], "whole": [], "between": []}
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        homes = {
            "PREFECT_HOME": str(top / "prefect"),
            "XDG_STATE_HOME": str(top / "state"),
            "MPLCONFIGDIR": str(top / "matplotlib"),
        }
        found["first"], _ = seconds_of(whole, _fresh(top / "first"), **homes)
        for number in range(rounds):
            alone, _ = seconds_of([*us, "--alone"], _fresh(top / f"alone-{number}"), **homes)
            ran, _ = seconds_of(whole, _fresh(top / f"whole-{number}"), **homes)
            found["alone"].append(alone)
            found["whole"].append(ran)
        with server(top / "running") as url:
            for number in range(rounds):
                place = _fresh(top / f"flow-{number}")
                _, said = seconds_of([*us, "--flow"], place, **homes, PREFECT_API_URL=url)
                found["between"].append(json.loads(said))
    return found


def _fresh(place: Path) -> Path:
    place.mkdir()
    shutil.copytree(ROOT / "data", place / "data")
    return place


def show(found: dict[str, Any], *, file: Path) -> None:
    """Prints the medians and what is promised."""
    print(f"{file.name}, {len(found['alone'])} rounds, {os.cpu_count()} cores")
    for clock in ("wall", "cpu"):
        alone, whole = (
            statistics.median(one[clock] for one in found[name]) for name in ("alone", "whole")
        )
        between = statistics.median(one[f"{clock}_between"] for one in found["between"])
        print(
            f"{clock}: alone {alone:.1f} s, whole {whole:.1f} s (first start of a Prefect home "
            f"{found['first'][clock]:.1f} s), added {whole - alone:.1f} s of "
            f"{0.1 * alone + 10:.1f} s; between tasks {1000 * between:.0f} ms of 50 ms "
            f"({found['between'][0]['tasks']:.0f} tasks)"
        )
    print(TARGETS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--file", type=Path, default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--flow", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone or asked.flow:
        from flows.cli.terminal import prepare_process

        prepare_process()
        atexit.register(gc.freeze)  # as `dpal run` does: Python's own end is not measured
        print(json.dumps((compute_alone if asked.alone else flow_between_tasks)(asked.file)))
        return
    found = measure(asked.file, rounds=asked.rounds)
    show(found, file=asked.file)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
