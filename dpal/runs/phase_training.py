"""One training phase, and the model that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save
from torch import nn
from tqdm import tqdm

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import Release
from dpal.data.labeled_records import load_labeled
from dpal.data.labeling_state import load_all
from dpal.data.pictures import DECODING_THREADS
from dpal.data.process_share import WHOLE
from dpal.data.readers import blank_record
from dpal.errors import LedgerError, ParameterError
from dpal.ledger.attempt_checkpoints import ReservedSteps
from dpal.ledger.attempt_names import planned_name
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.training_releases import TrainingRelease
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase, trial_release
from dpal.planning.campaign_spec import Acquisition, OptimizerSpec, SelectionMode
from dpal.randomness import secure
from dpal.runs.campaign import Campaign
from dpal.runs.host import TrainingMonitor, host
from dpal.runs.progress_logging import notify
from dpal.runs.remote_ranks import remote_ranks_of
from dpal.runs.search_choice import optimizer_of, search_choice
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.checkpoint_cadence import planned_step_seconds, steps_within
from dpal.training.distributed.messages import Loader
from dpal.training.distributed.worker_pool import WorkerPool
from dpal.training.linear_heads import LinearHeadFit
from dpal.training.model_layout import ModelLayout
from dpal.training.train_phase import position, train_dp_sgd
from dpal.training.training_state import TrainingState, Written

if TYPE_CHECKING:
    from dpal.training.distributed.sharded_checkpoints import LeadingState


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What trains from where, and how.

    Attributes:
      name: for people, such as phase-2.
      phase: whose records and steps these are.
      optimizer: how gradients become steps.
      model: to start from.
      before: state of the optimizer that goes on from an earlier phase; None where it begins.
    """

    name: str
    phase: Phase
    optimizer: OptimizerSpec
    model: nn.Module
    before: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training leaves: the released weights, and what the next phase carries on."""

    weights: bytes
    carried: bytes


def train_model(campaign: Campaign, phase: Phase) -> None:
    """Charges the phase to the ledger, then trains and persists it.

    Raises:
      TrainingStopped: it was cancelled; it can go on from where it stopped.
    """
    with host().watch_training(phase.name) as monitor, campaign.ledger() as ledger:

        def make(steps: ReservedSteps) -> Mapping[str, bytes]:
            trained = make_steps(campaign, _training(campaign, phase), steps, monitor)
            files = campaign.files(phase)
            return {files.optimizer.name: trained.carried, files.model.name: trained.weights}

        monitor.leave(phase.name)
        _release(campaign, phase, ledger).release_once(make)
        head = campaign.plan.spec.head
        how = f"trained {phase.steps:,} steps" if head is None else f"fitted by {head.kind}"
        notify(f"{phase.name}: {how}")
        monitor.leave(phase.name)


def start_over(campaign: Campaign, redraw: Sequence[str]) -> None:
    """Throws away what trainings persisted, and charges them a second time.

    Raises:
      BudgetExceeded: the promise has no room for that. Nothing was thrown away.
      LedgerError: a name is none of an unfinished training that has persisted something.
    """
    trials = range(1, 1 + len(campaign.plan.spec.trials))
    trainings = {
        **{trial_release(number): partial(trial_training, campaign, number) for number in trials},
        **{one.training_release: partial(_release, campaign, one) for one in campaign.plan.phases},
    }
    for name in redraw:
        training = trainings.get(planned_name(name))
        if training is None:
            raise LedgerError(
                f"--redraw {name}: only trainings can be drawn again ({', '.join(trainings)}); "
                "nothing was charged"
            )
        with campaign.ledger() as ledger:
            training(ledger).start_over(name)
            fits = _rest_fits(campaign, ledger)
        notify(f"{name}: thrown away and charged; it trains anew")
        if not fits:
            notify("what is left of the plan no longer fits into the promise and will be refused")


def _release(campaign: Campaign, phase: Phase, ledger: CampaignLedger) -> TrainingRelease:
    files, inputs = campaign.files(phase), []
    if phase.index == 0 and (choice := search_choice(campaign)) is not None:
        # What a search came to decides where the training starts, and with which settings.
        inputs = [files.search, files.trial(choice.best).weights]
    return TrainingRelease(
        ledger=ledger,
        release=_planned(campaign, phase.training_release),
        inputs=[files.selection, files.labels, files.pool, *inputs],
        artifacts=[files.optimizer, files.model],
        checkpoints=files.checkpoints,
    )


def trial_training(campaign: Campaign, number: int, ledger: CampaignLedger) -> TrainingRelease:
    """The release of a trial's weights.

    Args:
      campaign: that searches.
      number: of the trial, from 1.
      ledger: of the campaign.
    """
    placed = campaign.folder.phase(0)
    files = placed.trial(number)
    return TrainingRelease(
        ledger=ledger,
        release=_planned(campaign, trial_release(number)),
        inputs=[placed.selection, placed.labels, placed.pool],
        artifacts=[files.weights],
        checkpoints=files.checkpoints,
    )


def _planned(campaign: Campaign, name: str) -> Release:
    release = campaign.plan.release(name)
    if release is None:
        raise ParameterError(f"{name} is not part of the plan")
    return release


def _rest_fits(campaign: Campaign, ledger: CampaignLedger) -> bool:
    """Whether the releases still to come can all be paid."""
    spent, target = ledger.spent(), ledger.target()
    begun = {planned_name(release.name) for release in spent}
    planned = list(campaign.plan.releases())
    whole = [*spent, *(release for release in planned if release.name not in begun)]
    epsilon = campaign_epsilon(whole, target, accountant=ledger.accountant())
    data = ledger.data()
    return epsilon <= target.epsilon and (data is None or data.covers(planned, whole, target))


def load_model(campaign: Campaign, phase: int, *, device: str | None = None) -> nn.Module:
    """Loads the model of a finished phase; before phase 0, that of the trial that goes on.

    Where nothing is searched, phase 0 starts as trials do (`start_model`).
    """
    if phase >= 0:
        return model_with(campaign, campaign.folder.phase(phase).model, device=device)
    choice = search_choice(campaign)
    if choice is None:
        return start_model(campaign, device=device)
    weights = campaign.folder.phase(0).trial(choice.best).weights
    return model_with(campaign, weights, device=device)


def start_model(campaign: Campaign, *, device: str | None = None) -> nn.Module:
    """The model that a campaign starts from: an earlier campaign's, or a fresh one."""
    earlier = campaign.start.earlier
    path = None if earlier is None else campaign.folder.start_model
    return model_with(campaign, path, device=device)


def model_with(campaign: Campaign, path: Path | None, *, device: str | None = None) -> nn.Module:
    """The campaign's model with the weights of a file; None leaves them as they are built.

    Args:
      campaign: whose model.
      path: of the file.
      device: to put it on; None is the campaign's.
    """
    model = build_model(campaign.plan.spec.model)
    if path is not None:
        model.load_state_dict(load_file(path))
    device = campaign.device if device is None else device
    if device != "cpu":
        exact_arithmetic()
    return model.to(device)


def training_device(campaign: Campaign) -> str:
    """Where a model is put to be trained; one that will be sharded goes into memory first."""
    sharded = campaign.config.runtime.model_layout is ModelLayout.SHARDED
    return "cpu" if sharded else campaign.device


def _training(campaign: Campaign, phase: Phase) -> TrainingJob:
    """A phase goes on from the model before it, with the settings that a search found."""
    first = phase.index == 0
    return TrainingJob(
        name=phase.name,
        phase=phase,
        optimizer=optimizer_of(campaign),
        model=load_model(campaign, phase.index - 1, device=training_device(campaign)),
        before=None if first else campaign.folder.phase(phase.index - 1).optimizer,
    )


def make_steps(
    campaign: Campaign, training: TrainingJob, steps: ReservedSteps, monitor: TrainingMonitor
) -> Trained:
    """Makes the reserved steps that are still to be made.

    Raises:
      TrainingStopped: it was cancelled; it can go on from where it stopped.
    """
    if campaign.plan.spec.head is not None:
        return _fit_head(campaign, training, steps, monitor)
    phase, runtime, recipe = training.phase, campaign.config.runtime, campaign.plan.spec.recipe
    if steps.done:
        notify(f"{training.name}: goes on after {steps.done:,} of {phase.steps:,} steps")
    every = _steps_between_checkpoints(campaign, phase, training.model)
    # Where a training was stopped would say how fast its steps are.
    hidden = campaign.plan.spec.selection is SelectionMode.HIDDEN
    load = _loader(campaign, phase)
    with (
        _crew(campaign, phase, load, _gives_up(training, steps, monitor)) as crew,
        load(share=WHOLE if crew is None else crew.share) as labeled,
        _progress(training, steps.done, monitor) as show,
    ):
        state = _state(campaign, training, crew)
        if steps.state is not None:
            state.restore(Written.STATE, steps.state)
        elif training.before is not None:
            state.restore(Written.CARRIED, training.before)

        def on_step(done: int) -> None:
            show(done)
            state.committee.update(done)
            if done == phase.steps:
                return  # the model itself comes next
            stops = monitor.must_stop()
            if done % every == 0 or (stops and not hidden):
                steps.persist(state.write(Written.STATE), position(phase, done=done))
            if stops:
                so_far = f"{steps.persisted:,} of {phase.steps:,} steps"
                monitor.leave(f"{training.name}, after {so_far},")

        train_dp_sgd(
            state.model,
            state.optimizer,
            labeled,
            phase,
            training.optimizer,
            physical_batch=runtime.physical_batch,
            rng=secure(),  # never that of an attempt before
            recipe=recipe,
            backend=runtime.backend,
            clipper=state.clipper,
            average=state.average,
            crew=crew,
            done=steps.done,
            group_records=_group_records(campaign),
            before_step=steps.require,
            on_step=on_step,
        )
        return Trained(weights=state.write(Written.RELEASED), carried=state.write(Written.CARRIED))


def _state(
    campaign: Campaign, training: TrainingJob, crew: WorkerPool | None
) -> TrainingState | LeadingState:
    """What changes with the steps: here, or in rows on all processes of a crew."""
    recipe, steps = campaign.plan.spec.recipe, training.phase.steps
    spec, asked = training.optimizer, campaign.plan.spec.acquisition is Acquisition.COMMITTEE
    if crew is None or campaign.config.runtime.model_layout is ModelLayout.REPLICATED:
        return TrainingState(training.model, spec=spec, recipe=recipe, steps=steps, committee=asked)
    return crew.shard(training.model, spec=spec, recipe=recipe, steps=steps, committee=asked)


def _fit_head(
    campaign: Campaign, training: TrainingJob, steps: ReservedSteps, monitor: TrainingMonitor
) -> Trained:
    """Releases the sums of a phase's own records, the one reserved step, and solves the head.

    A process that is killed before both files are written has released nothing: the next attempt
    draws anew, as after any step that was not persisted.
    """
    phase, spec = training.phase, campaign.plan.spec
    public = load_all(campaign.public_records) if campaign.plan.figures is None else None
    before = None if training.before is None else load_file(training.before)
    head = LinearHeadFit(spec, public, before)
    with (
        _loader(campaign, phase)(share=WHOLE) as labeled,
        _progress(training, steps.done, monitor) as show,
    ):
        steps.require(1)
        head.add(
            labeled,
            phase,
            physical_batch=campaign.config.runtime.physical_batch,
            rng=secure(),  # never that of an attempt before
        )
        show(1)
    return Trained(weights=save(head.weights()), carried=save(head.state()))


def _steps_between_checkpoints(campaign: Campaign, phase: Phase, model: nn.Module) -> int:
    """A number that tells nothing of the records: as asked for, or of steps on made-up ones."""
    runtime, spec = campaign.config.runtime, campaign.plan.spec
    if runtime.checkpoint_steps is not None:
        return runtime.checkpoint_steps
    seconds = planned_step_seconds(
        model,
        phase,
        spec.optimizer,
        blank_record(campaign.pool, spec.model.input_shape),
        classes=spec.model.classes,
        task=spec.model.task,
        physical_batch=runtime.physical_batch,
        recipe=spec.recipe,
        backend=runtime.backend,
        processes=runtime.processes + runtime.helpers,
        group_records=_group_records(campaign),
    )
    return steps_within(runtime.checkpoint_minutes, step_seconds=seconds)


def _group_records(campaign: Campaign) -> int:
    groups = campaign.plan.spec.groups
    return 1 if groups is None else groups.records


def _loader(campaign: Campaign, phase: Phase) -> Loader:
    runtime = campaign.config.runtime
    return partial(
        load_labeled,
        campaign.pool,
        campaign.files(phase).pool,
        participation=campaign.plan.spec.participation,
        cache_mib=runtime.cache_mib // runtime.processes,
        scratch=campaign.folder.scratch,
        workers=max(1, DECODING_THREADS // runtime.processes),
    )


@contextmanager
def _crew(
    campaign: Campaign, phase: Phase, load: Loader, watch: Callable[[], None]
) -> Iterator[WorkerPool | None]:
    runtime = campaign.config.runtime
    remote = remote_ranks_of(campaign, phase, watch)
    if runtime.processes == 1 and remote is None:
        yield None
        return
    with WorkerPool(
        load,
        processes=runtime.processes,
        scratch=campaign.folder.scratch,
        device=runtime.device,
        remote=remote,
    ) as crew:
        yield crew


def _gives_up(
    training: TrainingJob, steps: ReservedSteps, monitor: TrainingMonitor
) -> Callable[[], None]:
    """Stops what waits for helpers of other machines, where the training is to stop."""

    def watch() -> None:
        if monitor.must_stop():
            monitor.leave(f"{training.name}, after {steps.persisted:,} of "
                          f"{training.phase.steps:,} steps,")  # fmt: skip

    return watch


@contextmanager
def _progress(
    training: TrainingJob, done: int, monitor: TrainingMonitor
) -> Iterator[Callable[[int], None]]:
    """Shows finished steps in the terminal and, through the monitor, on the Prefect page."""
    name, steps = training.name, training.phase.steps
    monitor.begin(f"{name}: {steps:,} private steps")
    with tqdm(total=steps, initial=done, desc=f"{name} training", unit="step",
              disable=None, leave=False) as bar:  # fmt: skip

        def show(step: int) -> None:
            bar.update(1)
            monitor.show(100 * step / steps)

        yield show
