"""Teachers: dealt out, trained side by side, asked. What they are and say is private."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from tqdm import tqdm

from dpal.config.campaign import parse_config
from dpal.config.runtime import TaskRunnerKind
from dpal.config.teachers import Cut
from dpal.data.label_columns import label_tensor
from dpal.data.labeling_state import load_all
from dpal.data.partitions import read_parts, write_given_parts, write_parts
from dpal.data.readers import raw_batches, records_of
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.ensemble import Ensemble, reading_settings
from dpal.runs.ensemble_hold import require_held
from dpal.runs.host import host
from dpal.runs.notify import notify
from dpal.runs.open_sources import open_sources
from dpal.runs.repeatable_training import RepeatableTraining, shown_training
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.evaluation import probabilities
from dpal.training.label_figures import answers_in, best_thresholds
from dpal.training.plain_training import OnStep, fine_tune
from dpal.voting.ballots import Ballots, Choices

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherPart:
    """One teacher to be trained: where its records lie, and how.

    Attributes:
      number: of the teacher.
      config: how the pool is read, as JSON with absolute paths.
      rows: (n,) of the pool that are this teacher's. Private.
      model: architecture, with a seed of its own.
      training: how.
      device: where.
    """

    number: int
    config: str
    rows: Rows
    model: ModelSpec
    training: FineTuning
    device: str

    def __repr__(self) -> str:
        return f"TeacherPart(number={self.number})"  # wherever it might be printed or logged


# A teacher is no release: it draws no noise, is seen by nobody and may be trained twice.
def train_teacher(part: TeacherPart) -> bytes:
    """Trains one teacher, on a worker, and returns its weights."""
    return _trained(part, on_step=lambda: None)


def _trained(part: TeacherPart, *, on_step: OnStep) -> bytes:
    pool, _ = open_sources(parse_config(json.loads(part.config)))
    inputs, labels = load_rows(pool, part.rows, part.model.task)
    if part.device != "cpu":
        exact_arithmetic()
    model = build_model(part.model).to(part.device)
    fine_tune(model, inputs, labels, part.training, task=part.model.task, on_step=on_step)
    return save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()})


def deal_records(ensemble: Ensemble) -> None:
    """Deals the private records out to teachers; again, it changes nothing."""
    if ensemble.parts_file.exists():
        return
    about = ensemble.config.teachers
    if about.partition is not None:
        write_given_parts(
            ensemble.parts_file,
            ensemble.pool,
            about.partition,
            about.count,
            group_column=about.group_column,
        )
    else:
        write_parts(
            ensemble.parts_file,
            ensemble.pool,
            about.count,
            group_column=about.group_column,
            seed=about.seed,
        )


def train_teachers(ensemble: Ensemble) -> None:
    """Trains the teachers that are not trained yet, side by side on the workers."""
    about, parts = ensemble.config.teachers, read_parts(ensemble.parts_file)
    missing = [
        number for number in range(about.count) if not ensemble.teacher_file(number).exists()
    ]
    runtime = ensemble.config.runtime
    here = runtime.task_runner is TaskRunnerKind.LOCAL
    device = ensemble.device if here else runtime.device
    config = with_absolute_paths(reading_settings(ensemble.config)).model_dump_json()
    work = [
        TeacherPart(
            number=number,
            config=config,
            rows=np.flatnonzero(parts == number).astype(np.int64),
            model=_seeded(ensemble.model, about.seed, number),
            training=about.to_training(number),
            device=device,
        )
        for number in missing
    ]
    if not all(teacher.rows.size for teacher in work):
        raise DataError.before_release("a teacher has no record")
    if not work:
        return
    done = about.count - len(missing)
    with shown_training("teachers", about.count, done=done, unit="model", told=False) as shown:
        # In this process a teacher that nobody wants any more is left before it is ready.
        train = partial(_trained, on_step=shown.require_wanted)
        trained = map(train, work) if here else host().run_parts(train_teacher, work, runtime)
        for part, weights in zip(work, trained, strict=True):
            with atomic_write(ensemble.teacher_file(part.number)) as temporary:
                temporary.write_bytes(weights)
            shown.step()
    notify(f"{about.count} teachers trained on disjoint parts")


def cast_votes(ensemble: Ensemble, inputs: Tensor) -> Ballots | Choices:
    """What every teacher says about public records, (n, *input_shape). Private."""
    about, tuned = ensemble.model.task, _tuning(ensemble)
    said = []
    for model in _teachers(ensemble):
        scores = scores_of(ensemble, model, inputs)
        if about is Task.SINGLE_LABEL:
            said.append(scores.argmax(axis=1))
            continue
        own = np.full(ensemble.model.classes, 0.5)
        if tuned is not None:
            # A function of one teacher and of public records: part of its ballot.
            per_label = ensemble.config.teachers.cut is Cut.PER_LABEL
            tuning_scores = scores_of(ensemble, model, tuned[0])
            own = best_thresholds(tuning_scores, answers_in(tuned[1].numpy()), per_label=per_label)
        said.append(np.packbits(scores > own, axis=1))
    if about is Task.SINGLE_LABEL:
        return Choices(np.stack(said, axis=1).astype(np.int64), ensemble.model.classes)
    return Ballots(np.stack(said, axis=1), ensemble.model.classes)


def load_rows(source: Source, rows: Rows, task: Task) -> tuple[Tensor, Tensor]:
    """Loads some rows of a labeled source: (n, *input_shape) inputs, and labels."""
    if source.label_column is None:
        raise DataError(f"{source.name} has no labels; teachers need one for every record")
    inputs, labels = [], []
    for batch in raw_batches(source, [source.content.value, source.label_column]):
        mine = np.intersect1d(rows, batch.rows) - batch.first_row
        if mine.size:
            part = batch.table.take(mine)
            inputs.append(records_of(source, part.column(0), rows=None))
            labels.append(label_tensor(part.column(1), task))
    return torch.cat(inputs), torch.cat(labels)


def load_inputs(source: Source, rows: Sequence[int] | Rows) -> tuple[list[str], Tensor]:
    """Ids and decoded records of some rows, in the order of the file."""
    wanted = np.sort(np.asarray(rows, dtype=np.int64))
    ids: list[str] = []
    inputs = []
    for batch in raw_batches(source, ["id", source.content.value]):
        mine = np.intersect1d(wanted, batch.rows) - batch.first_row
        if mine.size:
            part = batch.table.take(mine)
            ids += [str(record_id) for record_id in part.column(0).to_pylist()]
            inputs.append(records_of(source, part.column(1), rows=None))
    if not inputs:
        raise DataError(f"{source.name} has none of the records that are asked for")
    return ids, torch.cat(inputs)


def _teachers(ensemble: Ensemble) -> Iterator[nn.Module]:
    count = ensemble.config.teachers.count
    with tqdm(total=count, desc="asking teachers", unit="model", disable=None, leave=False) as bar:
        for number in range(count):
            model = build_model(_seeded(ensemble.model, 0, number))
            model.load_state_dict(_weights(ensemble.teacher_file(number)))
            yield model.to(ensemble.device)
            bar.update()


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError.before_release(
            f"the teacher {path} is missing or damaged; restore it from a backup (teachers are "
            "never pushed)"
        ) from error


def scores_of(ensemble: Ensemble, model: nn.Module, inputs: Tensor) -> NDArray[np.float64]:
    """Probabilities that a model gives to records, (n, classes)."""
    batch = ensemble.config.runtime.physical_batch
    return probabilities(model, inputs, physical_batch=batch, task=ensemble.model.task)


def _tuning(ensemble: Ensemble) -> tuple[Tensor, Tensor] | None:
    cut = ensemble.config.teachers.cut
    if ensemble.tuning is None or cut is Cut.HALF or ensemble.model.task is Task.SINGLE_LABEL:
        return None
    return load_all(ensemble.tuning)


def _seeded(spec: ModelSpec, seed: int, number: int) -> ModelSpec:
    """The architecture with first weights of this teacher's own."""
    return replace(spec, seed=spec.seed + 1 + seed * 100_003 + number)


def _teacher_files(ensemble: Ensemble) -> list[Path]:
    return [ensemble.teacher_file(number) for number in range(ensemble.config.teachers.count)]


TEACHERS = RepeatableTraining[Ensemble](
    name="teachers",
    train=train_teachers,
    makes=_teacher_files,
    require=require_held,
)
