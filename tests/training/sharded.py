"""Records and models for crews that hold a model in parts, and loaders that plant faults."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from scipy import stats
from torch import Tensor, nn

from dpal.data.labeled_records import LabeledSet
from dpal.data.process_share import Share
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Averaging, AveragingKind, Clipping, ClippingKind, Recipe
from dpal.randomness import BitSource, secure
from dpal.training.distributed import worker
from dpal.training.distributed.sharded_checkpoints import LeadingState
from dpal.training.distributed.worker_pool import WorkerPool, in_memory
from dpal.training.train_phase import train_dp_sgd
from dpal.training.training_state import TrainingState, Written
from tests.conftest import RepeatableBits
from tests.models import tiny_bert
from tests.training.crews import phase

WIDTH, CLASSES = 784, 3
C, PHYSICAL = 0.1, 3
SILENT = 1e-9  # noise multiplier: sums show through
ALARM = 1e-7  # chance of a false alarm, per test
SGD = OptimizerSpec(name="sgd", learning_rate=8.0, momentum=0.5, max_grad_norm=C)
# It divides by gradients, also by those of which only rounding is left: slowly, or that shows.
ADAM = OptimizerSpec(name="adam", learning_rate=0.005, momentum=0.0, max_grad_norm=C)
OWNERS = np.array([0, 0, 2, 3, 3, 5, 6, 6, 8, 8], dtype=np.int64)
EVERYTHING = ("embeddings", "encoder", "pooler", "classifier")
ADAPTIVE = Recipe(
    clipping=Clipping(kind=ClippingKind.ADAPTIVE, count_noise=1e-8),
    averaging=Averaging(kind=AveragingKind.EXPONENTIAL, decay=0.9),
)
RECIPES = {
    "flat": Recipe(),
    "per_layer": Recipe(clipping=Clipping(kind=ClippingKind.PER_LAYER)),
    "adaptive": ADAPTIVE,
}


def _labeled(count: int) -> LabeledSet:
    generator = torch.Generator().manual_seed(1)
    return LabeledSet(
        inputs=torch.randn(count, WIDTH, generator=generator),
        labels=torch.randint(0, CLASSES, (count,), generator=generator),
        cohorts=(np.arange(count) % 2).astype(np.int16),
    )


# Of three ranks one owns 4 and passes two chunks through the model, the others one; of two, each 5.
RECORDS = _labeled(10)
GROUPS = replace(RECORDS, owners=OWNERS, cohorts=np.zeros_like(RECORDS.cohorts))


class AsTexts(nn.Module):
    """Reads features as token ids, so that the records of all models here are alike."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = (7 * inputs[:, : tiny_bert.MAX_TOKENS].abs()).long()
        tokens = tokens % len(tiny_bert.VOCABULARY)
        logits: Tensor = self.classifier(torch.stack([tokens, torch.zeros_like(tokens)], dim=1))
        return logits


def build(name: str, folder: Path) -> nn.Module:
    """A registered model that reads the records here: the same weights each time."""
    if name.startswith("text"):
        bert = folder / "bert"
        if not bert.exists():
            tiny_bert.write_folder(bert)
        values: dict[str, Any] = {"adapter_rank": 2}
        if name == "text":
            values = {"trainable": EVERYTHING}
        return AsTexts(tiny_bert.model_of(bert, **values))
    images = name != "mlp"
    shape = (1, 28, 28) if images else (WIDTH,)
    model = build_model(ModelSpec(name=name, input_shape=shape, classes=CLASSES, hidden=(10, 7)))
    return nn.Sequential(nn.Unflatten(1, shape), model) if images else model


def train(
    state: TrainingState | LeadingState,
    one: Phase,
    spec: OptimizerSpec,
    *,
    crew: WorkerPool | None = None,
    recipe: Recipe | None = None,
    records: LabeledSet = RECORDS,
    done: int = 0,
    rng: BitSource | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Trains with all records of one process, or with a crew's share of them."""

    def stepped(step: int) -> None:
        state.committee.update(step)
        on_step(step)

    train_dp_sgd(
        state.model,
        state.optimizer,
        in_memory(records)(share=crew.share) if crew else records,
        one,
        spec,
        physical_batch=PHYSICAL,
        rng=rng or secure(),
        recipe=recipe,
        clipper=state.clipper,
        average=state.average,
        crew=crew,
        done=done,
        group_records=2,
        on_step=stepped,
    )


def everyone(steps: int, *, noise: float = SILENT) -> Phase:
    """Steps with all records in every batch."""
    return phase(steps, noise=noise, old=1.0, new=1.0)


def alone(model: nn.Module, spec: OptimizerSpec, recipe: Recipe, steps: int) -> TrainingState:
    """The state of a training in one process."""
    return TrainingState(model, spec=spec, recipe=recipe, steps=steps, committee=True)


def weights(state: TrainingState | LeadingState) -> dict[str, Tensor]:
    """Those that would be released, by name."""
    return load(state.write(Written.RELEASED))


def furthest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference between tensors of the same names and shapes."""
    assert one.keys() == other.keys()
    assert all(one[name].shape == other[name].shape for name in one)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


class Stopped(Exception):
    """The test has seen enough steps."""


def stop_after(steps: int) -> Callable[[int], None]:
    """What a training calls after each step, and is stopped by."""

    def on_step(done: int) -> None:
        if done == steps:
            raise Stopped

    return on_step


class SeededHelpers:
    """A loader after which a helper draws from a stream that others have, too."""

    def __call__(self, *, share: Share) -> LabeledSet:
        if share.rank:
            vars(worker)["secure"] = lambda: RepeatableBits(1)
        return in_memory(RECORDS)(share=share)


def bytes_held(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all parameters that are alive in this process, and of an optimizer's state."""
    # Of a sharded model the rows, and layers as they were put together; isinstance is slow here.
    tensors: list[Tensor] = [one for one in gc.get_objects() if type(one) is nn.Parameter]
    tensors += [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    sizes = {}
    for tensor in tensors:
        if tensor.device.type != "meta":
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


NOBODY = phase(1, noise=2.0, old=0.0, new=0.0)


def drawn(crew: WorkerPool, folder: Path, rng: BitSource | None = None) -> list[np.ndarray]:
    """Noise of a step in units of its deviation, of each rank's rows of the first parameter."""
    still = OptimizerSpec(name="sgd", learning_rate=1.0, momentum=0.0, max_grad_norm=C)
    model = build("mlp", folder)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = crew.shard(model, spec=still, recipe=Recipe(), steps=1)
    train(state, NOBODY, still, crew=crew, rng=rng)
    after, processes = weights(state), crew.share.processes
    scale = NOBODY.training.noise_multiplier * C / NOBODY.training.expected_batch_size
    first, *others = ((after[name] - before[name]).numpy() / scale for name in before)
    ranks = [rows.ravel() for rows in np.array_split(first, processes)]
    return [*ranks, np.concatenate([values.ravel() for values in others])]


def right_law(parts: list[np.ndarray]) -> bool:
    """Whether all are standard normal, and no two alike; wrongly denied with chance ALARM."""
    pairs = [(one, other) for at, one in enumerate(parts) for other in parts[:at]]
    level = ALARM / (len(parts) + len(pairs))
    for part in parts:
        square, count = float((part**2).sum()), len(part)
        tails = min(stats.chi2.cdf(square, count), stats.chi2.sf(square, count))
        if stats.kstest(part, "norm").pvalue < level / 2 or tails < level / 4:
            return False
    for one, other in pairs:
        size = min(len(one), len(other))
        if stats.pearsonr(one[:size], other[:size]).pvalue < level:
            return False
    return True
