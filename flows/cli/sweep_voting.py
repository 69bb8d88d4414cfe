"""`dpal run --sweep` of private voting: runs over values, then every method's mean and spread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.canonical import digest
from dpal.config.voting import PateConfig, parse_pate
from dpal.errors import BudgetExceeded, ConfigError, ParameterError, PlanRejected, TrainingStopped
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic import write_text
from dpal.reports.voting_sweeps import Member, sweep_figures, sweep_report, sweep_tables
from flows.cli.sweep import combinations
from flows.cli.sweep_values import sweep_values
from flows.cli.terminal import err, out, show, stop_at_once_on_interrupt

_REFUSALS = (BudgetExceeded, ParameterError, PlanRejected)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    config: PateConfig
    swept: dict[str, Any]


def sweep_votes(values: dict[str, Any], sweep: Sequence[str], repeat: Sequence[str]) -> None:
    """Runs private voting over all combinations of values. Prints the sweep's folder last.

    What was run before is not run again; a combination that is impossible is listed with the
    reason.
    """
    if not sweep:
        raise ConfigError("--repeat says what a --sweep is averaged over; give a --sweep, too")
    axes, repeated = ([sweep_values(text) for text in texts] for texts in (sweep, repeat))
    base = parse_pate(values)
    wanted = list(_wanted(values, axes, repeated))
    err.print(f"{len(wanted)} runs; starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    members, refused = [], []
    for number, one in enumerate(wanted, 1):
        err.print(f"[{number}/{len(wanted)}] {one.config.name} {one.swept}", markup=False)
        try:
            members.append(_run(one))
        except _REFUSALS as error:
            refused.append(f"not run: {one.swept}: {error}")
    folder = base.runtime.artifacts / base.name
    if members:
        _write(folder, base.name, members)
    for line in refused:
        out.print(line, markup=False)
    print(folder)  # noqa: T201  plain, for scripts


def _wanted(
    values: dict[str, Any],
    axes: Sequence[tuple[str, list[Any]]],
    repeated: Sequence[tuple[str, list[Any]]],
) -> Iterator[_Wanted]:
    for changed, known in combinations(values, axes, repeated):
        about = parse_pate(changed).model_dump(mode="json")
        del about["name"], about["runtime"]
        # The whole of it: who edits the file and sweeps again gets other members.
        changed["name"] = f"{values['name']}-{digest(about)[:8]}"
        swept = {key: known[key] for key, _ in axes}
        yield _Wanted(config=parse_pate(changed), swept=swept)


def _run(wanted: _Wanted) -> Member:
    """Runs private voting once, unless it is done; returns what every method reached."""
    folder = CampaignFolder(wanted.config.runtime.artifacts / wanted.config.name)
    if not folder.certificate.is_file():
        from flows.cli.orchestrator import needing_prefect, starting_prefect

        with starting_prefect():
            from prefect.exceptions import CancelledRun

            from flows.pate import vote_and_learn
        try:
            with needing_prefect():
                vote_and_learn(wanted.config)
        except CancelledRun as stopped:
            raise TrainingStopped(str(stopped)) from None
    return Member(
        name=wanted.config.name,
        swept=wanted.swept,
        summary=folder.read_record()["plan"],
        metrics=folder.finished_phases()[0],
        methods=json.loads((folder.root / "methods.json").read_text(encoding="utf-8")),
    )


def _write(folder: Path, name: str, members: Sequence[Member]) -> None:
    """Writes results, tables and figures of a sweep."""
    from dpal.reports.figures.style import save

    tables = sweep_tables(members)
    for table in tables:
        show(table)
    record = [{"name": one.name, "swept": one.swept, "metrics": one.metrics,
               "methods": one.methods} for one in members]  # fmt: skip
    write_text(folder / "sweep.json", json.dumps(record, indent=1) + "\n")
    pictures = []
    for key, figure in sweep_figures(members).items():
        path = folder / f"sweep-{key}.png"
        save(figure, path)
        pictures.append(path.name)
    write_text(folder / "sweep.md", sweep_report(name, members, pictures))
    out.print(f"results: {folder / 'sweep.md'}", markup=False)
