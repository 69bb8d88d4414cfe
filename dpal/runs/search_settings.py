"""A search among settings of the training, before the campaign trains: a few trials, each charged.

Every trial is a private training on the initial cohort, like that of phase 0, and is measured like
a phase: by noisy counts where the validation set is protected. The best by that figure goes on: its
settings are those of all phases, and phase 0 starts from its model, so that what it cost is used.

All trials are charged, so that the choice itself is post-processing and free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from dpal.errors import ParameterError
from dpal.files.atomic_writes import write_text
from dpal.ledger.resume import ReservedSteps
from dpal.ledger.training_releases import TrainingRelease
from dpal.planning.campaign_plan import Phase, TrainingPhase, trial_release
from dpal.reports.search_table import settings_in_words
from dpal.reports.validation_figures import as_metrics, headline, percent
from dpal.runs.campaign_run import Campaign
from dpal.runs.host import TrainingMonitor, host
from dpal.runs.notify import notify
from dpal.runs.phase_measuring import Measured, figures_of
from dpal.runs.phase_training import TrainingJob, make_steps, start_model
from dpal.runs.search_choice import SearchChoice


def search_settings(campaign: Campaign, phase: Phase) -> None:
    """Makes the trials that are not made yet and writes down which one goes on.

    Nothing is done where the plan has no search, or in a later phase than the first.

    Raises:
      TrainingStopped: it was cancelled; it can go on from where it stopped.
      LedgerError: a trial or its figures are not what they were, or not planned.
    """
    trial, files = campaign.plan.trial, campaign.files(phase)
    if trial is None or phase.index > 0 or files.search.is_file():
        return
    numbers = range(1, 1 + len(campaign.plan.spec.trials))
    reached = [_tried(campaign, phase, trial, number) for number in numbers]
    values = [headline(metrics)[1] for metrics in reached]
    best = max(numbers, key=lambda number: (values[number - 1], -number))  # of equals the first
    choice = SearchChoice(settings=campaign.plan.spec.trials, reached=tuple(reached), best=best)
    write_text(files.search, choice.to_json() + "\n")
    goes_on = f"{percent(values[best - 1])}; {settings_in_words(asdict(choice.optimizer))}"
    notify(f"search: trial {best} of {len(values)} goes on ({goes_on})")


def _tried(
    campaign: Campaign, phase: Phase, trial: TrainingPhase, number: int
) -> Mapping[str, object]:
    """Metrics of one trial, which is trained and measured unless it was."""
    name = trial_release(number)
    spoken, placed = f"trial {number} of {len(campaign.plan.spec.trials)}", campaign.files(phase)
    files, release = placed.trial(number), campaign.plan.release(name)
    if release is None:
        raise ParameterError(f"{name} is not part of the plan")
    with host().watch_training(spoken) as monitor, campaign.ledger() as ledger:
        monitor.leave(spoken)
        TrainingRelease(
            ledger=ledger,
            release=release,
            inputs=[placed.selection, placed.labels, placed.pool],
            artifacts=[files.weights],
            checkpoints=files.checkpoints,
        ).release_once(
            lambda steps: {
                files.weights.name: _weights(campaign, phase, trial, number, steps, monitor)
            }
        )
    measured = Measured(
        name=spoken,
        weights=files.weights,
        released=files.validation,
        release=name.replace("/training", "/figures"),
    )
    return as_metrics(figures_of(campaign, measured))


def _weights(
    campaign: Campaign,
    phase: Phase,
    trial: TrainingPhase,
    number: int,
    steps: ReservedSteps,
    monitor: TrainingMonitor,
) -> bytes:
    training = TrainingJob(
        name=f"trial {number} of {len(campaign.plan.spec.trials)}",
        phase=replace(phase, training=trial),
        optimizer=campaign.plan.spec.trials[number - 1],
        model=start_model(campaign),
    )
    return make_steps(campaign, training, steps, monitor).weights
