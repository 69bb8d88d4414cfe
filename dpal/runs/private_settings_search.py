"""A search among settings of the training, before the campaign trains: a few trials, each charged.

Every trial is a private training on the initial cohort, like that of phase 0, and is measured like
a phase: by noisy counts where the validation set is protected. The best by that figure goes on: its
settings are those of all phases, and phase 0 starts from its model, so that what it cost is used.

All trials are charged, so that the choice itself is post-processing and free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from dpal.files.atomic_writes import write_text
from dpal.ledger.attempt_checkpoints import ReservedSteps
from dpal.planning.campaign_plan import Phase
from dpal.planning.measured_phases import figures_name
from dpal.reports.search_table import settings_in_words
from dpal.reports.validation_figures import as_metrics, headline, percent
from dpal.runs.campaign import Campaign
from dpal.runs.host import host
from dpal.runs.phase_measuring import Measured, figures_of
from dpal.runs.phase_training import (
    TrainingJob,
    make_steps,
    start_model,
    training_device,
    trial_training,
)
from dpal.runs.progress_logging import notify
from dpal.runs.search_choice import SearchChoice, recorded_search


def search_settings(campaign: Campaign, phase: Phase) -> None:
    """Makes the trials that are not made yet and writes down which one goes on.

    Nothing is done where the plan has no search, or in a later phase than the first. Which trial it
    is follows from what was released each time that it is asked: a file that names another one is
    written anew, and refused where phase 0 has trained by it.

    Raises:
      TrainingStopped: it was cancelled; it can go on from where it stopped.
      LedgerError: a trial or its figures are not what they were, or not planned.
    """
    trial, files = campaign.plan.trial, campaign.files(phase)
    if trial is None or phase.index > 0:
        return
    numbers = range(1, 1 + len(campaign.plan.spec.trials))
    tried = replace(phase, training=trial)
    reached = [_tried(campaign, tried, number) for number in numbers]
    values = [headline(metrics)[1] for metrics in reached]
    best = max(numbers, key=lambda number: (values[number - 1], -number))  # of equals the first
    told = recorded_search(campaign.folder)
    if told is not None and told["best"] == best:
        return
    choice = SearchChoice(settings=campaign.plan.spec.trials, reached=tuple(reached), best=best)
    write_text(files.search, choice.to_json() + "\n")
    goes_on = f"{percent(values[best - 1])}; {settings_in_words(asdict(choice.optimizer))}"
    notify(f"search: trial {best} of {len(values)} goes on ({goes_on})")


def _tried(campaign: Campaign, phase: Phase, number: int) -> Mapping[str, object]:
    """Metrics of one trial, which is trained and measured unless it was.

    Args:
      campaign: that searches.
      phase: phase 0, with the steps of a trial.
      number: of the trial, from 1.
    """
    files, trials = campaign.files(phase).trial(number), campaign.plan.spec.trials
    name = f"trial {number} of {len(trials)}"
    with host().watch_training(name) as monitor, campaign.ledger() as ledger:

        def make(steps: ReservedSteps) -> Mapping[str, bytes]:
            job = TrainingJob(
                name=name,
                phase=phase,
                optimizer=trials[number - 1],
                model=start_model(campaign, device=training_device(campaign)),
            )
            return {files.weights.name: make_steps(campaign, job, steps, monitor).weights}

        monitor.leave(name)
        trial_training(campaign, number, ledger).release_once(make)
    measured = Measured(
        name=name,
        weights=files.weights,
        released=files.validation,
        release=figures_name(phase.index, trial=number),
    )
    return as_metrics(figures_of(campaign, measured))
