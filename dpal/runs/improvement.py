"""An improvement: label public records for a private model, and learn from them for free."""

from __future__ import annotations

from typing import Any

from dpal.canonical import digest
from dpal.config.improvement import parse_public
from dpal.files.artifacts import CampaignFolder
from dpal.labelers import Labeler
from dpal.reports.improvement import cost_table, improvement_table, pollution_table
from dpal.runs.execute import run
from dpal.runs.fine_tuning import (
    ask_public_labeler,
    choose_public,
    close_improvement,
    fine_tune_model,
    pretrain_on_rotations,
)
from dpal.runs.improvement_report import certify_improved as certify
from dpal.runs.improvement_report import draw_central, record_improvement
from dpal.runs.improvement_run import Improving
from dpal.runs.near_private_hold import end_guidance, hold_guidance
from dpal.runs.near_private_release import release_components, release_support
from dpal.runs.prepare_improvement import is_trained, with_trained_start
from dpal.runs.prepare_improvement import plan_improvement as plan
from dpal.runs.prepare_improvement import prepare_improvement as prepare
from dpal.runs.results import Shown
from dpal.runs.sweeps import deciding, write_sweep
from dpal.runs.sweeps import sweep_member as any_member
from dpal.runs.tracked import ServedModel, Tracked

__all__ = [
    "advance", "certify", "plan", "prepare", "results", "sweep_member", "tracked_of", "write_sweep",
]  # fmt: skip


def advance(improving: Improving, labeler: Labeler | None = None) -> Improving:
    """Holds the plan, trains the start where it is not trained, releases, and learns.

    Raises:
      LabelsPending: people have to label first.
    """
    if improving.config.start.rotations is not None:
        pretrain_on_rotations(improving)
        improving = prepare(improving.config)  # the start begins with other weights now
    hold_guidance(improving)
    record_improvement(improving)
    if improving.start.to_train is not None and not is_trained(improving):
        run(improving.start.to_train)
    improving = with_trained_start(improving)
    if improving.spec.guidance is not None:
        release_components(improving)
        release_support(improving)
        end_guidance(improving)
    choose_public(improving)
    if pending := ask_public_labeler(improving, labeler):
        raise pending
    fine_tune_model(improving)
    close_improvement(improving)
    draw_central(improving)
    return improving


def results(folder: CampaignFolder) -> Shown:
    """Accuracy before and after, and what private records have spent."""
    summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
    found = [improvement_table(summary, metrics), cost_table(summary)]
    return [*found, pollution_table(metrics)] if "irrelevant_chosen" in metrics else found


def sweep_member(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of one improvement of a sweep, with a start that alike ones share."""
    named, about, config = any_member(values), deciding(values), parse_public(values)
    if not config.start.trains:
        return named
    about["start"].pop("name")  # what it is called is not what it is
    alike = {key: about[key] for key in ("data", "model", "training", "privacy", "start")}
    # Where the guidance takes part of the promise, the start gets what is left.
    if config.start.rotations is not None:
        alike["public"] = about["public"]
    if config.choice.method.reads_private and config.start.epsilon is None:
        alike["near_private"] = about["near_private"]
    stem = config.start.name or f"{values['name']}-start"
    start = {**(named.get("start") or {}), "name": f"{stem}-{digest(alike)[:8]}"}
    return {**named, "start": start}


def tracked_of(improving: Improving) -> Tracked:
    """What a tracking server is told of a finished improvement."""
    spec = improving.spec
    metrics = improving.folder.finished_phases()[0]
    return Tracked(
        parameters={
            **{f"choice.{key}": value for key, value in vars(spec.choice).items()},
            **{f"fine_tuning.{key}": value for key, value in vars(spec.fine_tuning).items()},
            "start": spec.before.campaign or "a model's file",
            "model": spec.model.name,
        },
        figures={key: value for key, value in metrics.items() if isinstance(value, float | int)},
        tags={"dpal.start_from": spec.before.campaign or "a model's file"},
        model=ServedModel(
            weights=improving.files.model,
            spec=spec.model,
            extractor=improving.start.reading.data.to_extractor(),
            source=improving.public,
            class_names=improving.start.classes,
        ),
    )
