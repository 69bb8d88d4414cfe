"""Time and memory of a training step, beside what else one could use, in one run.

All methods take turns, so that every one meets the machine in the same mood; ratios are of
the fastest and of the median round. Peak memory is measured in a process of its own for each
method. Seconds depend on the machine, ratios hardly do.

    python -m tests.benchmarks.training                      # CPU, a quiet machine: 15 minutes
    python -m tests.benchmarks.training --device cuda --batches 256 1024 4096 \
        --precisions fp32 tf32 bf16
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch

from dpal.planning.training_recipe import Precision
from dpal.training.arithmetic import exact_arithmetic
from tests.benchmarks.steps import BASE, LOW_PRECISION, METHODS, OURS, Case, Step

MODELS = ("tutorial_cnn", "resnet9", "transformer")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
TARGETS = (
    "targets on 2 CPU cores, batch 256: resnet9 at most 1.5 x the time and 1.15 x the memory of "
    "non-private in channels_last, at least 1.6 x faster than opacus hooks; tutorial_cnn at most "
    "1.5 x non-private in torch's own layout; logical batch 4096 of resnet9 below 3 GiB. On a "
    "GPU: at most 1.5 x at 4096 in bf16"
)
_WARM_UP = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one case; ratios are to non-private training in channels_last."""

    model: str
    batch: int
    device: str
    precision: str
    method: str
    seconds: float | None
    ratio: float | None
    ratio_of_medians: float | None
    peak_mib: float | None
    memory_ratio: float | None


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def warm(step: Step, case: Case) -> None:
    for _ in range(_WARM_UP):
        step()
    wait(case.device)


def seconds_of(
    case: Case, methods: Sequence[str], *, rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each method's steps, by round; methods that run out of memory are missing."""
    steps: dict[str, Step] = {}
    for name in methods:
        try:
            steps[name] = METHODS[name](case)
            warm(steps[name], case)
        except torch.OutOfMemoryError:
            steps.pop(name, None)
            torch.cuda.empty_cache()
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            step()
            wait(case.device)
            found[name].append(clock() - start)
    return found


def peak_mib(case: Case, name: str, *, warmed: bool = True) -> float | None:
    """Peak memory of a method's steps, in a process of its own; None when it is not enough."""
    asked = {"case": {**asdict(case), "precision": str(case.precision)}, "method": name}
    found = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.training", "--peak", json.dumps(asked)]
        + ([] if warmed else ["--once"]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        if "OutOfMemory" in found.stderr:
            return None
        raise RuntimeError(found.stderr)
    return float(found.stdout.splitlines()[-1])


def peak_here(asked: str, *, once: bool) -> float:
    """Peak MiB of this process (of the device, on a GPU) after steps of one method."""
    values = json.loads(asked)
    case = Case(**{**values["case"], "precision": Precision(values["case"]["precision"])})
    step = METHODS[values["method"]](case)
    for _ in range(1 if once else 1 + _WARM_UP):
        step()
    if case.device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    # Not ru_maxrss: a process starts with that of the one that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def rows_of(case: Case, *, rounds: int, clock: Callable[[], float], memory: bool) -> Iterator[Row]:
    """Measures all methods on one case."""
    low = case.precision is Precision.BF16
    methods = [name for name in METHODS if not low or name in LOW_PRECISION]
    seconds = seconds_of(case, methods, rounds=rounds, clock=clock)
    peaks = {name: peak_mib(case, name) if memory else None for name in methods}

    def over(values: dict[str, float], name: str) -> float | None:
        return values[name] / values[BASE] if name in values and BASE in values else None

    best = {name: min(each) for name, each in seconds.items()}
    middle = {name: statistics.median(each) for name, each in seconds.items()}
    known = {name: peak for name, peak in peaks.items() if peak is not None}
    for name in methods:
        yield Row(
            model=case.model, batch=case.batch, device=case.device, precision=case.precision,
            method=name, seconds=best.get(name), ratio=over(best, name),
            ratio_of_medians=over(middle, name), peak_mib=peaks[name],
            memory_ratio=over(known, name),
        )  # fmt: skip


def show(rows: Sequence[Row]) -> None:
    head = ("model", "batch", "precision", "method", "seconds", "ratio", "medians", "MiB", "ratio")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        figures = (
            (row.seconds, ".4f"), (row.ratio, ".2f"), (row.ratio_of_medians, ".2f"),
            (row.peak_mib, ".0f"), (row.memory_ratio, ".2f"),
        )  # fmt: skip
        cells = ["-" if value is None else format(value, form) for value, form in figures]
        print(f"| {row.model} | {row.batch} | {row.precision} | {row.method} | "
              + " | ".join(cells) + " |")  # fmt: skip
    print(TARGETS)


def speedup(rows: Sequence[Row], model: str, batch: int, *, over: str) -> float:
    """How many times faster ours is than another method, by the fastest rounds in fp32."""
    best = {
        row.method: row.seconds
        for row in rows
        if (row.model, row.batch, row.precision) == (model, batch, Precision.FP32)
    }
    ours, other = best[OURS], best[over]
    if ours is None or other is None:
        raise ValueError(f"{over} or {OURS} ran out of memory on {model}")
    return other / ours


def hardware(device: str) -> str:
    """What the figures belong to."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        listed = Path("/proc/cpuinfo")
        lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = f"{names[0] if names else platform.processor()}, {torch.get_num_threads()} threads"
    return f"{name}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=[256])
    parser.add_argument("--precisions", nargs="+", type=Precision, default=[Precision.FP32])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=CLOCKS, default="wall",
                        help="cpu: a proxy on a busy machine, with OMP_NUM_THREADS=1")  # fmt: skip
    parser.add_argument("--logical", type=int, default=4096,
                        help="batch of resnet9 whose memory is measured; 0: none")  # fmt: skip
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    exact_arithmetic()
    if asked.peak:
        print(peak_here(asked.peak, once=asked.once))
        return
    rows: list[Row] = []
    for model, batch, precision in product(asked.models, asked.batches, asked.precisions):
        case = Case(
            model=model, batch=batch, physical_batch=batch, precision=precision,
            device=asked.device,
        )  # fmt: skip
        rows += rows_of(
            case, rounds=asked.rounds, clock=CLOCKS[asked.clock], memory=not asked.no_memory
        )
    print(f"{hardware(asked.device)}; {asked.rounds} rounds, {asked.clock} time")
    show(rows)
    logical = None
    if asked.logical and "resnet9" in asked.models:
        case = Case(model="resnet9", batch=asked.logical, physical_batch=256, device=asked.device)
        logical = peak_mib(case, OURS, warmed=False)
        print(f"resnet9, logical batch {asked.logical} in parts of 256: {logical:.0f} MiB at most")
    if asked.json:
        figures = {
            "hardware": hardware(asked.device), "rounds": asked.rounds, "clock": asked.clock,
            "logical_batch": asked.logical, "logical_batch_peak_mib": logical,
            "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
