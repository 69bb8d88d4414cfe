"""One training phase, and what its model can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from safetensors.torch import load_file, save
from torch import nn
from tqdm import tqdm

from dpal.data.pool import load_all, load_labeled
from dpal.errors import ParameterError
from dpal.models.registry import build_model
from dpal.persist import write_together
from dpal.planning.plan import Phase
from dpal.randomness import secure
from dpal.training.evaluation import accuracy
from dpal.training.exact import exact_arithmetic
from dpal.training.optimizers import build_optimizer, restore_state, state_tensors
from dpal.training.phase import train_phase
from tasks.context import Campaign, say

_SECONDS_BETWEEN_UPDATES = 2.0


@task(retries=0, cache_policy=NO_CACHE)  # a retry would be a second, unpaid release
def train_model(campaign: Campaign, phase: Phase) -> None:
    """Charges the phase to the ledger, then trains and persists it."""
    files = campaign.files(phase)
    release = campaign.plan.release(phase.training_release)
    if release is None:
        raise ParameterError(f"{phase.training_release} is not part of the plan")

    def draw() -> None:
        _train(campaign, phase)

    with campaign.ledger() as ledger:
        ledger.settle(
            release,
            draw,
            inputs=[files.selection, files.labels, files.pool],
            artifacts=[files.optimizer, files.model],
        )
    say(f"{phase.name}: trained {phase.steps:,} steps")


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
    """Loads the model of a finished phase; before phase 0, a fresh one."""
    model = build_model(campaign.plan.spec.model)
    if phase >= 0:
        model.load_state_dict(load_file(campaign.folder.phase(phase).model))
    device = campaign.config.runtime.device
    if device != "cpu":
        exact_arithmetic()
    return model.to(device)


def _train(campaign: Campaign, phase: Phase) -> None:
    files, spec = campaign.files(phase), campaign.plan.spec.optimizer
    model = load_model(campaign, phase.index - 1)
    optimizer = build_optimizer(spec, model.parameters())
    if phase.index > 0:
        restore_state(optimizer, load_file(campaign.folder.phase(phase.index - 1).optimizer))
    with _progress(phase) as on_step:
        train_phase(
            model,
            optimizer,
            load_labeled(campaign.pool, files.pool),
            phase,
            spec,
            physical_batch=campaign.config.runtime.physical_batch,
            rng=secure(),
            on_step=on_step,
        )
    weights = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    write_together(
        files.root,
        {files.optimizer.name: save(state_tensors(optimizer)), files.model.name: save(weights)},
    )


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
def _progress(phase: Phase) -> Iterator[_Steps]:
    text = f"{phase.name}: {phase.steps:,} private steps"
    key = f"{phase.name}-training"
    artifact = create_progress_artifact(progress=0.0, key=key, description=text)
    with tqdm(total=phase.steps, desc=f"{phase.name} training", unit="step",
              disable=None, leave=False) as bar:  # fmt: skip
        yield _Steps(phase, artifact if isinstance(artifact, UUID) else None, bar)
