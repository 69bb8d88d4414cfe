"""Sweeps: runs over values of settings, each under a name and a promise of its own."""

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
from dpal.config.runtime import RunConfig
from dpal.config.validation import DeclaredValidation
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.reports.plots.style import save
from dpal.reports.plots.sweeps import sweep_figure
from dpal.reports.sweeps import (
    comparison_records,
    points_of,
    points_table,
    sweep_comparison_table,
    sweep_report,
)
from dpal.runs.kinds import folder_of, kind_in
from dpal.runs.promised_and_spent import Shown
from dpal.runs.released_phase import reached

RESULTS = "sweep.json"
COMPARISONS = "sweep-comparisons.json"  # means, intervals, and what differs beyond noise
_PROMISE = ("target_epsilon", "delta", "adjacency", "unit")
# Settings that 0.2.0 did not have, as they usually are: a sweep or a book that was begun before
# finds its runs by the same names, and pays for none of them again. A new setting belongs here.
_LATER: dict[str, Any] = {
    "release": "best",
    "search": None,
    "self_training": None,
    "stop": None,
    "data.group_column": None,
    "labeler.suggest": False,
    "model.adapted_layers": ["query", "value"],
    "model.adapter_rank": 0,
    "privacy.budgets": None,
    "privacy.candidates": None,
    "privacy.label_cap": None,
    "privacy.secret_draw": None,
    "privacy.unit": "record",
    "schedule.group_labels": None,
    "schedule.group_records": 4,
    "student.balance": 0.0,
    "teachers.budgets": None,
    "training.components": 50,
    "training.max_feature_norm": None,
    "training.method": "dp_sgd",
    "voting.acquisition": "random",
    "voting.answer_from": None,
    "voting.answered_share": None,
    "voting.bar": 3.0,
    "voting.neighbours": None,
    "voting.object_from": 0.5,
    "voting.objections": None,
    "voting.release": "answers",
    "voting.rounds": 1,
    "voting.votes": 8,
}

Axis = tuple[str, list[Any]]  # a setting, and the values that it takes


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run of a sweep.

    Attributes:
      config: its settings.
      swept: values of the swept settings, by key.
      repeated: values of those that are averaged over.
    """

    config: RunConfig
    swept: Mapping[str, Any]
    repeated: Mapping[str, Any]

    @property
    def folder(self) -> CampaignFolder:
        """Its files."""
        return folder_of(self.config)

    def said(self) -> dict[str, Any]:
        """Its values, for records."""
        return {"swept": dict(self.swept), "repeated": dict(self.repeated)}


def members(
    values: Mapping[str, Any], axes: Sequence[Axis], repeated: Sequence[Axis]
) -> Iterator[Member]:
    """Yields a run for every combination of values.

    Args:
      values: settings as a person wrote them.
      axes: what is swept.
      repeated: what is averaged over.

    Raises:
      ConfigError: a setting is named twice, unknown, or has no such value; or two of its values
        make the same run, which would be counted twice.
    """
    kind, keys = kind_in(values), [key for key, _ in (*axes, *repeated)]
    if len(set(keys)) != len(keys):
        raise ConfigError("a setting stands twice among --sweep and --repeat; give each once")
    seen: dict[Path, tuple[Any, ...]] = {}
    places = product(*(range(len(given)) for _, given in (*axes, *repeated)))
    for place in places:
        chosen = [given[at] for at, (_, given) in zip(place, (*axes, *repeated), strict=True)]
        changed, chosen_settings = copy.deepcopy(dict(values)), dict(zip(keys, chosen, strict=True))
        for key, value in chosen_settings.items():
            override(changed, key, value)
        member = Member(
            config=kind.parse(kind.use_cases().sweep_member(changed)),
            swept={key: chosen_settings[key] for key, _ in axes},
            repeated={key: chosen_settings[key] for key, _ in repeated},
        )
        _require_no_tuning(member.config)
        if (before := seen.setdefault(member.folder.root, place)) != place:
            differing = next(at for at, _ in enumerate(keys) if before[at] != place[at])
            raise _same_run(keys[differing], "--sweep" if differing < len(axes) else "--repeat")
        yield member


def _same_run(key: str, option: str) -> ConfigError:
    return ConfigError.before_release(
        f"{option} {key} has two values that make the same run, whose result would count twice; "
        "give each value once, of a setting that moves results"
    ).about(key, "same_run")


def _require_no_tuning(config: RunConfig) -> None:
    """Requires that figures of a sweep, by which settings are chosen, are of public records.

    Raises:
      ConfigError: they are protected. Nothing was released.
    """
    declared = getattr(config, "validation", None)
    if isinstance(declared, DeclaredValidation) and declared.protected:
        raise ConfigError.before_release(
            "a sweep chooses settings by figures of the same validation records, which pay for one "
            "run at a time where they are protected; sweep on public records (validation: {public: "
            "true, why: in words}), or run settings that were fixed before"
        ).about("validation", "protected")


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """The same settings, under a name that follows from all of them."""
    about = deciding(values)
    return {**values, "name": f"{values['name']}-{digest(about)[:8]}"}


def deciding(values: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run but for its name, where it runs, and what moves no result.

    Of `validation` members declare the same: it is public, as protected figures are not swept.
    """
    about = kind_in(values).parse(values).model_dump(mode="json")
    for key in ("name", "runtime", "validation"):
        about.pop(key, None)
    for key, usual in _LATER.items():
        section, _, setting = key.rpartition(".")
        held = about.get(section) if section else about
        if held is not None and setting in held and held[setting] == usual:
            del held[setting]
    return about


def record_of(member: Member) -> dict[str, Any]:
    """What a finished run reached, and under which promise."""
    summary = member.folder.read_record()["plan"]
    phases = member.folder.finished_phases()
    kept = {key: value for key, value in (reached(member.folder) if phases else {}).items()
            if isinstance(value, int | float)}  # fmt: skip
    promise = {key: summary[key] for key in _PROMISE}
    spent = {"campaign_epsilon": summary.get("epsilon", summary.get("worst_epsilon"))}
    return {**member.said(), **promise, "name": member.config.name, **spent, **kept}


def write_any_sweep(
    folder: Path, finished: Sequence[Member], refused: Sequence[Mapping[str, Any]]
) -> Shown:
    """Writes results, report and figure of a sweep of runs of any kind."""
    records = [*map(record_of, finished), *refused]
    keys = list(records[0]["swept"])
    # First of all: runs were paid for, whatever becomes of the tables.
    write_text(folder / RESULTS, json.dumps(records, indent=1) + "\n")
    points = points_of(records, keys)
    compared = comparison_records(points, keys)
    write_text(folder / COMPARISONS, json.dumps(compared, indent=1) + "\n")
    comparisons = sweep_comparison_table(points, keys)
    shown = [points_table(points, keys), *([comparisons] if comparisons.rows else [])]
    drawn = [point for point in points if point.reached]
    if drawn:
        save(sweep_figure(drawn, keys[0]), folder / "sweep.png")
    write_text(folder / "sweep.md", sweep_report(points, records, keys))
    figures = [f"figure:  {folder / 'sweep.png'}"] if drawn else []
    return [*shown, *figures, f"results: {folder / RESULTS}"]
