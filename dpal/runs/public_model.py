"""A model of public records alone, whose answers stand where teachers do not object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from dpal.data.labeling_state import load_all
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.runs.ensemble_hold import require_held
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.progress_logging import notify
from dpal.runs.repeatable_training import RepeatableTraining, shown_training
from dpal.runs.teachers import scores_of, teacher_weights
from dpal.training.plain_training import fine_tune, training_steps


def train_public_model(ensemble: Ensemble) -> None:
    """Trains it on the tuning records, where there is one; again, it changes nothing."""
    path = ensemble.public_model_file
    if PUBLIC_MODEL.is_done(ensemble):
        return
    if ensemble.tuning is None:
        raise DataError.before_release("a public model has no public labeled records")
    (inputs, labels), (spec, training) = load_all(ensemble.tuning), _recipe(ensemble)
    model = build_model(spec).to(ensemble.device)
    with shown_training("public-model", training_steps(training, len(inputs))) as shown:
        fine_tune(model, inputs, labels, training, task=spec.task, on_step=shown.step)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    with atomic_write(path) as temporary:
        save_file(tensors, temporary)
    notify(f"public model trained on {len(inputs):,} public records")


def public_answers(ensemble: Ensemble, inputs: Tensor) -> NDArray[np.int64] | None:
    """Classes that it names, (n,), of (n, *input_shape) records; None where there is none."""
    if ensemble.spec.consensus is None:
        return None
    model = build_model(_recipe(ensemble)[0])
    model.load_state_dict(teacher_weights(ensemble.public_model_file))
    scores = scores_of(ensemble, model.to(ensemble.device), inputs)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def _recipe(ensemble: Ensemble) -> tuple[ModelSpec, FineTuning]:
    """As a teacher's, from other first weights and in an order of its own."""
    about = ensemble.config.teachers
    return ensemble.model, about.to_training(about.count)


PUBLIC_MODEL = RepeatableTraining[Ensemble](
    name="public-model",
    train=train_public_model,
    makes=lambda ensemble: [] if ensemble.spec.consensus is None else [ensemble.public_model_file],
    require=require_held,
)
