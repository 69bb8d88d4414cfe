"""One training phase, and what its model can do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from safetensors.torch import load_file, save
from torch import nn
from tqdm import tqdm

from dpal.accounting.cohorts import campaign_epsilon
from dpal.data.pool import load_all, load_labeled
from dpal.errors import LedgerError, ParameterError
from dpal.ledger.attempts import planned_name
from dpal.ledger.checkpoints import TrainingRelease
from dpal.ledger.reservations import CampaignLedger
from dpal.ledger.resume import ReservedSteps
from dpal.models.registry import build_model
from dpal.planning.plan import Phase
from dpal.randomness import secure
from dpal.training.checkpoints import Cadence, pack_state, restore_training
from dpal.training.evaluation import accuracy
from dpal.training.exact import exact_arithmetic
from dpal.training.optimizers import build_optimizer, restore_state, state_tensors
from dpal.training.phase import position, train_phase
from tasks.context import Campaign, say

_SECONDS_BETWEEN_UPDATES = 2.0


@task(retries=0, cache_policy=NO_CACHE)  # a retry would be a second, unpaid release
def train_model(campaign: Campaign, phase: Phase) -> None:
    """Charges the phase to the ledger, then trains and persists it."""

    def train(steps: ReservedSteps) -> Mapping[str, bytes]:
        if steps.done:
            say(f"{phase.name}: goes on after {steps.done:,} of {phase.steps:,} steps")
        return _train(campaign, phase, steps)

    with campaign.ledger() as ledger:
        _release(campaign, phase, ledger).settle(train)
    say(f"{phase.name}: trained {phase.steps:,} steps")


@task(retries=0, cache_policy=NO_CACHE)  # each is a charge
def start_over(campaign: Campaign, redraw: Sequence[str]) -> None:
    """Throws away what trainings persisted, and charges them a second time.

    Raises:
      BudgetExceeded: the promise has no room for that. Nothing was thrown away.
      LedgerError: a name is none of an unfinished training that has persisted something.
    """
    phases = {phase.training_release: phase for phase in campaign.plan.phases}
    for name in redraw:
        phase = phases.get(planned_name(name))
        if phase is None:
            raise LedgerError(
                f"--redraw {name}: only trainings can be drawn again ({', '.join(phases)}); "
                "nothing was charged"
            )
        with campaign.ledger() as ledger:
            _release(campaign, phase, ledger).start_over(name)
            fits = _rest_fits(campaign, ledger)
        say(f"{name}: thrown away and charged; {phase.name} trains anew")
        if not fits:
            say("what is left of the plan no longer fits into the promise and will be refused")


def _release(campaign: Campaign, phase: Phase, ledger: CampaignLedger) -> TrainingRelease:
    files, release = campaign.files(phase), campaign.plan.release(phase.training_release)
    if release is None:
        raise ParameterError(f"{phase.training_release} is not part of the plan")
    return TrainingRelease(
        ledger=ledger,
        release=release,
        inputs=[files.selection, files.labels, files.pool],
        artifacts=[files.optimizer, files.model],
        checkpoints=files.checkpoints,
    )


def _rest_fits(campaign: Campaign, ledger: CampaignLedger) -> bool:
    """Whether the releases still to come can all be paid."""
    spent, target = ledger.spent(), ledger.target()
    begun = {planned_name(one.name) for one in spent}
    rest = [one for one in campaign.plan.releases() if one.name not in begun]
    epsilon = campaign_epsilon([*spent, *rest], target, accountant=ledger.accountant())
    data = ledger.data()
    return epsilon <= target.epsilon and (data is None or data.covers([*spent, *rest], target))


@task(cache_policy=NO_CACHE)
def measure(campaign: Campaign, phase: Phase) -> float:
    """Accuracy of the phase's model on the validation set, which is not protected."""
    inputs, labels = load_all(campaign.validation)
    model = load_model(campaign, phase.index)
    batch = campaign.config.runtime.physical_batch
    reached = accuracy(model, inputs, labels, physical_batch=batch)
    say(f"{phase.name}: validation accuracy {100 * reached:.2f} %")
    return reached


def load_model(campaign: Campaign, phase: int) -> nn.Module:
    """Loads the model of a finished phase; before phase 0, an earlier campaign's or a fresh one."""
    model = build_model(campaign.plan.spec.model)
    if phase >= 0:
        model.load_state_dict(load_file(campaign.folder.phase(phase).model))
    elif campaign.start.earlier is not None:
        model.load_state_dict(load_file(campaign.folder.start_model))
    device = campaign.config.runtime.device
    if device != "cpu":
        exact_arithmetic()
    return model.to(device)


def _train(campaign: Campaign, phase: Phase, steps: ReservedSteps) -> Mapping[str, bytes]:
    files, runtime = campaign.files(phase), campaign.config.runtime
    spec = campaign.plan.spec.optimizer
    model = load_model(campaign, phase.index - 1)
    optimizer = build_optimizer(spec, model.parameters())
    if steps.state is not None:
        restore_training(steps.state, model, optimizer)
    elif phase.index > 0:
        restore_state(optimizer, load_file(campaign.folder.phase(phase.index - 1).optimizer))
    cadence = Cadence(minutes=runtime.checkpoint_minutes, steps=runtime.checkpoint_steps)
    with _progress(phase, steps.done) as show:

        def on_step(done: int) -> None:
            show(done)
            if done < phase.steps and cadence.due(done):  # the last one is the model itself
                steps.persist(pack_state(model, optimizer), position(phase, done=done))

        train_phase(
            model,
            optimizer,
            load_labeled(campaign.pool, files.pool, participation=campaign.plan.spec.participation),
            phase,
            spec,
            physical_batch=runtime.physical_batch,
            rng=secure(),  # never that of an attempt before
            done=steps.done,
            before_step=steps.require,
            on_step=on_step,
        )
    weights = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    return {files.optimizer.name: save(state_tensors(optimizer)), files.model.name: save(weights)}


class _Steps:
    """Shows finished steps in the terminal and, now and then, on the Prefect page."""

    def __init__(self, phase: Phase, artifact: UUID | None, bar: tqdm) -> None:  # type: ignore[type-arg]
        self._total, self._artifact, self._bar = phase.steps, artifact, bar
        self._last = 0.0

    def __call__(self, step: int) -> None:
        self._bar.update(1)
        now = time.monotonic()
        due = now - self._last > _SECONDS_BETWEEN_UPDATES or step == self._total
        if self._artifact is not None and due:
            self._last = now
            update_progress_artifact(self._artifact, progress=100 * step / self._total)


@contextmanager
def _progress(phase: Phase, done: int) -> Iterator[_Steps]:
    text = f"{phase.name}: {phase.steps:,} private steps"
    key = f"{phase.name}-training"
    artifact = create_progress_artifact(progress=0.0, key=key, description=text)
    with tqdm(total=phase.steps, initial=done, desc=f"{phase.name} training", unit="step",
              disable=None, leave=False) as bar:  # fmt: skip
        yield _Steps(phase, artifact if isinstance(artifact, UUID) else None, bar)
