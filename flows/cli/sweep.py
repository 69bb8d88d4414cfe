"""`dpal run --sweep`: one improvement after the other over values, then a table and a figure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dpal.canonical import digest
from dpal.config.campaign import override
from dpal.config.improvement import KIND, PublicConfig, parse_public
from dpal.config.voting import PATE
from dpal.errors import (
    BudgetExceeded,
    ConfigError,
    DataBudgetExceeded,
    ParameterError,
    PlanRejected,
    TrainingStopped,
)
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic import write_text
from dpal.reports.sweeps import Point, points_of, points_table, sweep_report
from flows.cli.sweep_values import sweep_values
from flows.cli.terminal import err, out, show, stop_at_once_on_interrupt

_REFUSALS = (BudgetExceeded, DataBudgetExceeded, ParameterError, PlanRejected)
_RESULTS = "sweep.json"


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One improvement of a sweep.

    Attributes:
      config: its settings.
      swept: values of the swept settings, by key.
      repeated: values of those that are averaged over.
    """

    config: PublicConfig
    swept: Mapping[str, Any]
    repeated: Mapping[str, Any]


def sweep_here(values: dict[str, Any], sweep: Sequence[str], repeat: Sequence[str]) -> None:
    """Runs an improvement over all combinations of values. Prints the sweep's folder last.

    What was run before is not run again; a combination that is impossible is listed with the
    reason. Raises what stops a single improvement.
    """
    if values.get("kind") == PATE:
        from flows.cli.sweep_voting import sweep_votes

        sweep_votes(values, sweep, repeat)
        return
    if values.get("kind") != KIND:
        raise ConfigError(
            f"--sweep runs improvements (kind: {KIND}) and private voting (kind: {PATE}); for "
            "campaigns use dpal plan --sweep, or dpal rehearse on public data"
        )
    if not sweep:
        raise ConfigError("--repeat says what a --sweep is averaged over; give a --sweep, too")
    axes, repeated = ([sweep_values(text) for text in texts] for texts in (sweep, repeat))
    base = parse_public(values)
    members = list(_members(values, axes, repeated))
    err.print(f"{len(members)} improvements; starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    records = [_run(member) for member in _counted(members)]
    folder = base.runtime.artifacts / base.name
    points = points_of(records, [key for key, _ in axes])
    _write(folder, records, points, [key for key, _ in axes])
    show(points_table(points, [key for key, _ in axes]))
    for one in records:
        if one.get("refused"):
            out.print(f"not run: {one['swept']}: {one['refused']}", markup=False)
    print(folder)  # noqa: T201  plain, for scripts


def _members(
    values: dict[str, Any],
    axes: Sequence[tuple[str, list[Any]]],
    repeated: Sequence[tuple[str, list[Any]]],
) -> Iterator[_Member]:
    for changed, known in combinations(values, axes, repeated):
        config = parse_public(_named(changed))
        swept = {key: known[key] for key, _ in axes}
        yield _Member(config=config, swept=swept, repeated={k: known[k] for k, _ in repeated})


def combinations(
    values: dict[str, Any],
    axes: Sequence[tuple[str, list[Any]]],
    repeated: Sequence[tuple[str, list[Any]]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields settings with every combination of values, and which values those are.

    Raises:
      ConfigError: a setting is named twice.
    """
    keys = [key for key, _ in (*axes, *repeated)]
    if len(set(keys)) != len(keys):
        raise ConfigError("a setting stands twice among --sweep and --repeat; give each once")
    for chosen in product(*(given for _, given in (*axes, *repeated))):
        changed = copy.deepcopy(values)
        for key, value in zip(keys, chosen, strict=True):
            override(changed, key, value)
        yield changed, dict(zip(keys, chosen, strict=True))


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of one member: a name of its own, and a start that alike members share."""
    name, config = str(values["name"]), parse_public(values)
    about = config.model_dump(mode="json")
    del about["name"], about["runtime"]
    # The whole of it: who edits the file and sweeps again gets other members, not old results.
    values["name"] = f"{name}-{digest(about)[:8]}"
    if config.start.trains:
        about["start"].pop("name")  # what it is called is not what it is
        alike = {key: about[key] for key in ("data", "model", "training", "privacy", "start")}
        # Where the guidance takes part of the promise, the start gets what is left.
        if config.start.rotations is not None:
            alike["public"] = about["public"]
        if config.choice.method.reads_private and config.start.epsilon is None:
            alike["near_private"] = about["near_private"]
        stem = config.start.name or f"{name}-start"
        values.setdefault("start", {})["name"] = f"{stem}-{digest(alike)[:8]}"
    return values


def _counted(members: Sequence[_Member]) -> Iterator[_Member]:
    for number, member in enumerate(members, 1):
        told = ", ".join(f"{key}={value}" for key, value in
                         {**member.swept, **member.repeated}.items())  # fmt: skip
        err.print(f"[{number}/{len(members)}] {told}", markup=False)
        yield member


def _run(member: _Member) -> dict[str, Any]:
    """Runs one improvement, unless it is done; returns what it reached."""
    record: dict[str, Any] = {"swept": dict(member.swept), "repeated": dict(member.repeated)}
    folder = CampaignFolder(member.config.runtime.artifacts / member.config.name)
    if not folder.certificate.is_file():
        from flows.cli.orchestrator import needing_prefect, starting_prefect

        with starting_prefect():
            from prefect.exceptions import CancelledRun, Pause

            from flows.public import improve_model
        try:
            with needing_prefect():
                improve_model(member.config)
        except _REFUSALS as refused:
            return {**record, "refused": str(refused)}
        except Pause as waiting:
            return {**record, "refused": f"waits for labels: {waiting}"}
        except CancelledRun as stopped:
            raise TrainingStopped(str(stopped)) from None
    summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
    kept = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    promise = {key: summary[key] for key in ("target_epsilon", "delta", "adjacency", "unit")}
    return {**record, **promise, "name": member.config.name, **kept}


def _write(
    folder: Path, records: Sequence[dict[str, Any]], points: Sequence[Point], keys: Sequence[str]
) -> None:
    """Writes results, report and figure of a sweep."""
    from dpal.reports.figures.style import save
    from dpal.reports.figures.sweeps import sweep_figure

    write_text(folder / _RESULTS, json.dumps(list(records), indent=1) + "\n")
    if points:
        save(sweep_figure(points, keys[0]), folder / "sweep.png")
    write_text(folder / "sweep.md", sweep_report(points, records, keys))
    out.print(f"figure:  {folder / 'sweep.png'}", markup=False)
    out.print(f"results: {folder / _RESULTS}", markup=False)
