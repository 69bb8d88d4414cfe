"""Whether a campaign goes on to its next phase, and what it says when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpal.config.campaign import CampaignConfig
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.model_choice_and_stopping import EndStatement
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Phase
from dpal.reports.validation_figures import headline_key
from dpal.runs.campaign import Campaign
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import validation_curve


def phases_to_run(campaign: Campaign) -> Iterator[Phase]:
    """Yields the phases of a plan one by one, until the campaign's own rule ends it.

    Whether a phase begins is decided when it is asked for: from the phases that are finished then,
    on disk, so that a run that goes on after a crash decides the same. A phase that has begun is
    finished.
    """
    for phase in campaign.plan.phases:
        if not campaign.files(phase).manifest.is_file() and not _goes_on(campaign, phase):
            return
        yield phase


def has_stopped(campaign: Campaign) -> bool:
    """Whether the ledger says that a campaign ended early by its own rule."""
    with campaign.ledger() as ledger:
        return ledger.has_stopped


def end_campaign(campaign: Campaign) -> None:
    """Gives back to the data set what the campaign held and did not use."""
    finished, planned = campaign.folder.finished_phases(), len(campaign.plan.phases)
    stops = len(finished) < planned
    with campaign.ledger() as ledger:
        said = said_at_end(campaign.config, finished, models=ledger.models, stops=stops)
        ledger.end(said)
    if stops:
        notify(
            f"ended after {len(finished)} of {planned} phases: the validation curve is flat; no "
            "further labels are bought"
        )


def said_at_end(
    config: CampaignConfig,
    finished: list[dict[str, Any]],
    *,
    models: int,
    stops: bool = False,
) -> Mapping[str, Any]:
    """What the end of a campaign says of its model, and of why it came early.

    Args:
      config: its settings.
      finished: metrics of its finished phases.
      models: how many models it committed.
      stops: whether its own rule ends it.
    """
    if not finished:
        return {}
    stated = EndStatement(
        figure=headline_key(finished[0]),
        values=validation_curve(finished),
        release=config.release,
        stop=config.stop.rule() if stops and config.stop is not None else None,
    )
    return stated.record(models=models)


def _goes_on(campaign: Campaign, phase: Phase) -> bool:
    """Whether a phase that is not finished is to be run."""
    with campaign.ledger() as ledger:
        if ledger.has_stopped:
            return False
        begun = campaign.files(phase).selection.exists() or _is_reserved(ledger, phase)
    if begun or campaign.config.stop is None or phase.is_self_training:
        return True  # the rule is about labels, and a phase of self-training buys none
    values = validation_curve(campaign.folder.finished_phases())
    return not campaign.config.stop.rule().stops_after(values)


def _is_reserved(ledger: CampaignLedger, phase: Phase) -> bool:
    names = {planned_name(release.name) for release in ledger.spent()}
    return not names.isdisjoint((phase.selection_release, phase.training_release))
