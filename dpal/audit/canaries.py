"""Trains on canaries with the campaign's own code, and guesses who was in.

Every canary's gradient has a direction of its own: a layer beside the model has one weight
for each of them, whose gradient is so large that clipping leaves almost nothing else. What
a step releases about a canary is then one number, C or 0 plus noise over the divisor: the very
pair of distributions that the accountant assumes, and no other attack sees more.

Other canaries are ordinary records with wrong labels; who they are is guessed from the
final model's loss on them, as somebody would who only has the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from dpal.audit.training_step_checks import without_chance
from dpal.data.labeled_records import LabeledSet
from dpal.labels import UNKNOWN, Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec, Groups, OptimizerSpec
from dpal.planning.training_recipe import Clipping
from dpal.privacy import Adjacency
from dpal.randomness import BitSource
from dpal.training import train_phase as training
from dpal.training.losses import per_record_loss
from dpal.training.optimizers import build_optimizer

_LOUD = 1e4  # gradient of a canary before it is clipped, over C or 1, about
_HALF, _CLEARLY = 0.6745, 0.9
_UPWARDS = 0  # the class or label of canaries, and the only one

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CanaryStep:
    """What one step did to the canaries.

    Attributes:
      phase: number of the phase, and of its new cohort.
      rates: (m,) planned chance of each canary to join; 0.0 before it is labeled.
      noise_multiplier: as planned.
      joined: (m,) who was in the batch, as the model met them.
      seen: (m,) what was released about each, in units of C: contribution plus noise.
    """

    phase: int
    rates: Floats
    noise_multiplier: float
    joined: Bools
    seen: Floats


@dataclass(frozen=True, eq=False)
class CanaryRun:
    """A finished run.

    Attributes:
      included: (m,) who was in, decided by fair coins.
      cohorts: (m,) in which phase each would be labeled.
      steps: in order.
      planned: number of steps that the plan asks for.
      mislabeled_included: (k,) the same for records with wrong labels.
      losses: (k,) of the final model on them.
      adjacency: which change "included or not" is.
    """

    included: Bools
    cohorts: NDArray[np.int16]
    steps: tuple[CanaryStep, ...]
    planned: int
    mislabeled_included: Bools
    losses: Floats
    adjacency: Adjacency

    def scores(self) -> Floats:
        """Log-likelihood ratio of each canary, (m,), over everything that was released.

        Where there is clearly less noise than planned, the ratio is for the noise there is.
        """
        total = np.zeros(self.included.size)
        for step in self.steps:
            # Half of normal values lie within 0.6745 deviations.
            share = float(np.median(np.abs(step.seen))) / (_HALF * step.noise_multiplier)
            variance = (step.noise_multiplier * (share if 0 < share < _CLEARLY else 1.0)) ** 2
            total += _log_mixture(step.rates, (2 * step.seen - 1) / (2 * variance))
            if self.adjacency is Adjacency.REPLACE_ONE:
                total -= _log_mixture(step.rates, (-2 * step.seen - 1) / (2 * variance))
        return total


class CanaryModel(nn.Module):
    """A model with one more weight for each canary, which adds to the first class.

    A record is a row: its content, and the number of the canary (0 for none). All that the
    layer beside the model ever sees is that number.
    """

    def __init__(
        self, core: nn.Module, *, shape: tuple[int, ...], canaries: int, max_grad_norm: float
    ) -> None:
        super().__init__()
        self.core, self._shape, self._canaries = core, shape, canaries
        self._loud = _LOUD * max(1.0, max_grad_norm)
        self.canaries = nn.Linear(canaries, 1, bias=False)
        nn.init.zeros_(self.canaries.weight)
        self.met: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        numbers = rows[:, -1].long().clamp(0, self._canaries)  # made-up rows have any number
        self.met.append(numbers[numbers > 0] - 1)
        chosen = nn.functional.one_hot(numbers, self._canaries + 1)[:, 1:]
        direction = chosen.to(self.canaries.weight.dtype)
        logits: Tensor = self.core(rows[:, :-1].reshape(-1, *self._shape))
        beside = self.canaries(self._loud * direction)
        return torch.cat([logits[:, :1] + beside, logits[:, 1:]], dim=1)

    def take_met(self) -> NDArray[np.intp]:
        """Numbers of the canaries met since the last call."""
        met = torch.cat([torch.zeros(0).long(), *self.met]).cpu().numpy()
        self.met.clear()
        return np.asarray(met, dtype=np.intp)


def train_on_canaries(
    plan: Plan,
    inputs: Tensor,
    labels: Tensor,
    *,
    canaries: int,
    physical_batch: int,
    fresh: Callable[[], BitSource],
    on_step: Callable[[], None] = lambda: None,
) -> CanaryRun:
    """Runs all training of a plan on canaries, the trials of a search first.

    Phase 0 goes on from the trial of the campaign's own settings, as if it had been the best.

    Args:
      plan: steps, rates, noise, divisors, clipping norm and optimizer are its.
      inputs: (n, *input_shape) float32 records that are not protected.
      labels: (n,) class numbers, and the next class is wrong; or (n, labels), and the
        opposite of each is.
      canaries: with a direction of their own.
      physical_batch: records per backward pass.
      fresh: gives a new stream, as every phase takes one.
      on_step: called after each step.
    """
    spec, phases = plan.spec, len(plan.phases)
    coins = fresh().words(canaries + len(inputs)) >> np.uint64(63) == 1
    included, wrong = coins[:canaries], coins[canaries:]
    cohorts = (np.arange(canaries) % phases).astype(np.int16)
    wrong_cohorts = (np.arange(len(inputs)) % phases).astype(np.int16)
    multi = spec.model.task is Task.MULTI_LABEL
    if multi:  # what is not known stays so
        mistaken = torch.where(labels == UNKNOWN, labels, 1 - labels)
    else:
        mistaken = (labels + 1) % spec.model.classes
    everyone = _records(spec, included, cohorts, inputs, mistaken, wrong, wrong_cohorts)
    everyone = _as_groups(everyone, spec.groups)
    model = CanaryModel(
        build_model(spec.model),
        shape=spec.model.input_shape,
        canaries=canaries,
        max_grad_norm=max(tried.max_grad_norm for tried in (spec.optimizer, *spec.trials)),
    )
    steps: list[CanaryStep] = []

    def train(phase: Phase, settings: OptimizerSpec, optimizer: Optimizer) -> None:
        entered = everyone.cohorts <= phase.index
        labeled = LabeledSet(
            inputs=everyone.inputs[torch.from_numpy(entered)],
            labels=everyone.labels[torch.from_numpy(entered)],
            cohorts=everyone.cohorts[entered],
            owners=None if everyone.owners is None else everyone.owners[entered],
        )
        watch = _Watch(phase, settings.max_grad_norm, model, cohorts, steps, on_step)
        training.train_dp_sgd(
            model,
            optimizer,
            labeled,
            phase,
            settings,
            physical_batch=physical_batch,
            rng=fresh(),
            recipe=replace(without_chance(spec.recipe), clipping=Clipping()),
            group_records=1 if spec.groups is None else spec.groups.records,
            on_step=watch,
        )

    # The weights of the canaries stay at zero: whoever processes what is released may well
    # leave some of it out, and so every step attacks anew.
    fresh_weights = {name: value.clone() for name, value in model.core.state_dict().items()}
    if plan.trial is not None:
        initial = replace(plan.phases[0], training=plan.trial)
        for settings in reversed(spec.trials):
            model.core.load_state_dict(fresh_weights)
            train(initial, settings, build_optimizer(settings, model.core.parameters()))
    optimizer = build_optimizer(spec.optimizer, model.core.parameters())
    for phase in plan.phases:
        train(phase, spec.optimizer, optimizer)
    return CanaryRun(
        included=included,
        cohorts=cohorts,
        steps=tuple(steps),
        planned=plan.steps,
        mislabeled_included=wrong,
        losses=_losses(model.core, inputs, mistaken, spec.model.task),
        adjacency=spec.target.adjacency,
    )


def with_fewer_steps(plan: Plan, *, most_steps: int) -> Plan:
    """The plan with fewer steps in every trial and part, in proportion, at least one in each."""
    if plan.steps <= most_steps:
        return plan
    share = most_steps / plan.steps

    def fewer(part: TrainingPhase) -> TrainingPhase:
        return replace(part, steps=max(1, int(part.steps * share)))

    phases = []
    for phase in plan.phases:
        caught = None if phase.catch_up is None else fewer(phase.catch_up)
        phases.append(replace(phase, training=fewer(phase.training), catch_up=caught))
    trial = None if plan.trial is None else fewer(plan.trial)
    return replace(plan, phases=tuple(phases), trial=trial)


class _Watch:
    """Notes after each step what it did, in a phase that may have several parts."""

    def __init__(
        self,
        phase: Phase,
        max_grad_norm: float,
        model: CanaryModel,
        cohorts: NDArray[np.int16],
        steps: list[CanaryStep],
        on_step: Callable[[], None],
    ) -> None:
        self._parts = [part for part in phase.parts for _ in range(part.steps)]
        self._phase, self._norm, self._model = phase.index, max_grad_norm, model
        self._cohorts, self._steps, self._on_step = cohorts, steps, on_step

    def __call__(self, step: int) -> None:
        part = self._parts[min(step, len(self._parts)) - 1]
        rates = np.where(self._cohorts < self._phase, part.sample_rate_old, 0.0)
        rates[self._cohorts == self._phase] = part.sample_rate_new
        joined = np.zeros(rates.size, dtype=np.bool_)
        joined[self._model.take_met()] = True
        gradient = self._model.canaries.weight.grad
        released = np.zeros(rates.size) if gradient is None else gradient.double().cpu().numpy()[0]
        # A canary pulls the logit of its class up, against the gradient of its loss.
        seen = -released * part.expected_batch_size / self._norm
        self._steps.append(CanaryStep(self._phase, rates, part.noise_multiplier, joined, seen))
        self._on_step()


def _records(
    spec: CampaignSpec,
    included: Bools,
    cohorts: NDArray[np.int16],
    inputs: Tensor,
    mistaken: Tensor,
    wrong: Bools,
    wrong_cohorts: NDArray[np.int16],
) -> LabeledSet:
    """Canaries that are in, and records with wrong labels that are in.

    Under replace_one a canary that is out is replaced by its opposite: the same content
    with another label, which pulls the other way.
    """
    replaced = spec.target.adjacency is Adjacency.REPLACE_ONE
    there = np.ones_like(included) if replaced else included
    numbers = torch.from_numpy(np.flatnonzero(there) + 1).to(inputs.dtype)[:, None]
    # All of one type: rows of texts stay numbers of tokens, also those that a screening makes up.
    blank = inputs.new_zeros(len(numbers), math.prod(spec.model.input_shape))
    kept = torch.from_numpy(wrong)
    ordinary = torch.cat([inputs[kept].flatten(1), inputs.new_zeros(int(wrong.sum()), 1)], dim=1)
    upwards = _pulling(torch.from_numpy(included[there]), spec.model)
    return LabeledSet(
        inputs=torch.cat([torch.cat([blank, numbers], dim=1), ordinary]),
        labels=torch.cat([upwards, mistaken[kept]]),
        cohorts=np.concatenate([cohorts[there], wrong_cohorts[wrong]]),
    )


def _as_groups(records: LabeledSet, groups: Groups | None) -> LabeledSet:
    """The same, each as a group of so many equal records that a step leaves one of them out."""
    if groups is None:
        return records
    owners = np.arange(len(records.labels)).repeat(groups.records + 1)
    rows = torch.from_numpy(owners)
    return replace(
        records,
        inputs=records.inputs[rows],
        labels=records.labels[rows],
        cohorts=records.cohorts[owners],
        owners=owners,
    )


def _pulling(up: Tensor, spec: ModelSpec) -> Tensor:
    """Labels (n, ...) that pull the logit beside the model up or down."""
    if spec.task is Task.SINGLE_LABEL:
        return torch.where(up, _UPWARDS, _UPWARDS + 1)
    labels = torch.zeros(len(up), spec.classes, dtype=torch.int8)
    labels[:, _UPWARDS] = up.to(labels.dtype)
    return labels


def _losses(model: nn.Module, inputs: Tensor, labels: Tensor, task: Task) -> Floats:
    model.eval()
    with torch.no_grad():
        losses = per_record_loss(task)(model(inputs), labels)
    return losses.double().numpy()


def _log_mixture(rates: Floats, log_ratio: Floats) -> Floats:
    """Ln of (1 - q) + q e^r."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log1p(-rates), np.log(rates) + log_ratio)
