"""Teachers: dealt out, trained side by side, asked. What they are and say is private."""

from __future__ import annotations

import json
import math
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
from dpal.config.pate_sections import Cut
from dpal.config.runtime import TaskRunnerKind
from dpal.data.label_columns import label_tensor
from dpal.data.labeling_state import load_all
from dpal.data.partitions import (
    read_parts,
    require_same_parts,
    write_given_parts,
    write_parts,
)
from dpal.data.pool_by_teacher import GroupedPool, made_of, write_grouped
from dpal.data.readers import raw_batches, records_of
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.public_selection import FineTuning
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.ensemble_hold import require_held
from dpal.runs.host import host
from dpal.runs.open_sources import open_sources
from dpal.runs.prepare_ensemble import Ensemble, reading_settings
from dpal.runs.progress_logging import notify
from dpal.runs.repeatable_training import RepeatableTraining, shown_training
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.evaluation import probabilities
from dpal.training.label_metrics import answers_in, best_thresholds
from dpal.training.plain_training import OnStep, fine_tune, training_steps
from dpal.training.side_by_side import fine_tune_together, is_small_head
from dpal.voting.ballots import Ballots, Choices, surest

Rows = NDArray[np.int64]

_BLOCK_TEACHERS, _BLOCK_BYTES = 64, 2**27  # small models that are trained at once, and their inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherBlock:
    """Teachers that are trained together: where their records lie, and how.

    Attributes:
      number: of the block.
      teachers: numbers of the teachers.
      config: how the pool is read, as JSON with absolute paths.
      grouped: the pool as `write_grouped` wrote it.
      made_of: what that was made from.
      models: architecture of each, with a seed of its own.
      trainings: how each is trained.
      device: where.
    """

    number: int
    teachers: tuple[int, ...]
    config: str
    grouped: Path
    made_of: str
    models: tuple[ModelSpec, ...]
    trainings: tuple[FineTuning, ...]
    device: str

    def __repr__(self) -> str:
        return f"TeacherBlock(number={self.number})"  # wherever it might be printed or logged


# A teacher is no release: it draws no noise, is seen by nobody and may be trained twice. One that
# diverges votes as well, for the first class or for no label: a run that failed would be seen.
def train_block(part: TeacherBlock) -> list[bytes]:
    """Trains a block of teachers, on a worker, and returns their weights."""
    return _trained(part, on_step=lambda: None)


def _trained(block: TeacherBlock, *, on_step: OnStep) -> list[bytes]:
    pool, _ = open_sources(parse_config(json.loads(block.config)))
    with GroupedPool(block.grouped, pool, block.made_of) as grouped:
        records = [grouped.load(teacher) for teacher in block.teachers]
    inputs, labels = [own[0] for own in records], [own[1] for own in records]
    if block.device != "cpu":
        exact_arithmetic()
    models = [build_model(spec).to(block.device) for spec in block.models]
    task = block.models[0].task
    if len(models) > 1:
        fine_tune_together(models, inputs, labels, block.trainings, task=task, on_step=on_step)
    else:
        (model,), (training,) = models, block.trainings
        fine_tune(
            model, inputs[0], labels[0], training, task=task, may_diverge=True, on_step=on_step
        )
    return [
        save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()})
        for model in models
    ]


def deal_records(ensemble: Ensemble) -> None:
    """Deals the private records out to teachers; again, it changes nothing.

    Raises:
      DataError: parts that somebody chose overlap, or are others than when they were taken over.
    """
    about, path = ensemble.config.teachers, ensemble.parts_file
    if not ensemble.has_teachers:
        return
    if about.partition is not None:
        take = require_same_parts if path.exists() else write_given_parts
        column = about.group_column
        take(path, ensemble.pool, about.partition, about.count, group_column=column)
    elif not path.exists():
        write_parts(
            path, ensemble.pool, about.count, group_column=about.group_column, seed=about.seed
        )


def train_teachers(ensemble: Ensemble) -> None:
    """Trains the teachers that are not trained yet, in blocks, side by side on the workers."""
    count = len(_teacher_files(ensemble))
    missing = {number for number in range(count) if not ensemble.teacher_file(number).exists()}
    if missing:
        _train_blocks(ensemble, missing)
        notify(f"{count} teachers trained on disjoint parts")
    forget_grouped(ensemble)


def _train_blocks(ensemble: Ensemble, missing: set[int]) -> None:
    parts, count = read_parts(ensemble.parts_file), ensemble.config.teachers.count
    sizes = np.bincount(parts, minlength=count)
    if not sizes.all():
        raise DataError.before_release("a teacher has no record")
    runtime = ensemble.config.runtime
    here = runtime.task_runner is TaskRunnerKind.LOCAL
    blocks = _blocks(ensemble, sizes, missing, ensemble.device if here else runtime.device)
    done = count - len(missing)
    with shown_training("teachers", count, done=done, unit="model", told=False) as shown:
        made = _group_pool(ensemble, parts)
        work = [replace(block, made_of=made) for block in blocks]
        # In this process a teacher that nobody wants any more is left before it is ready.
        train = partial(_trained, on_step=shown.require_wanted)
        trained = map(train, work) if here else host().run_parts(train_block, work, runtime)
        for block, weights in zip(work, trained, strict=True):
            for number, own in zip(block.teachers, weights, strict=True):
                if number in missing:
                    with atomic_write(ensemble.teacher_file(number)) as temporary:
                        temporary.write_bytes(own)
                    shown.step()


def _blocks(ensemble: Ensemble, sizes: Rows, missing: set[int], device: str) -> list[TeacherBlock]:
    """Blocks of teachers of which one is missing."""
    about = ensemble.config.teachers
    trainings = [about.to_training(number) for number in range(about.count)]
    models = [_seeded(ensemble.model, about.seed, number) for number in range(about.count)]
    config = with_absolute_paths(reading_settings(ensemble.config)).model_dump_json()
    most = 1
    if is_small_head(build_model(models[0]), trainings[0]):
        most = _BLOCK_BYTES // (4 * math.prod(ensemble.model.input_shape))
    return [
        TeacherBlock(
            number=number,
            teachers=tuple(teachers),
            config=config,
            grouped=ensemble.grouped_file.resolve(),
            made_of="",
            models=tuple(models[teacher] for teacher in teachers),
            trainings=tuple(trainings[teacher] for teacher in teachers),
            device=device,
        )
        for number, teachers in enumerate(_companies(sizes, trainings[0], most))
        if not missing.isdisjoint(teachers)
    ]


def _companies(sizes: Rows, training: FineTuning, most: int) -> list[list[int]]:
    """Teachers that take as many steps and have at most so many records, or one with more.

    It follows from all teachers: those of a run that was killed are trained again in the same
    company, and become the same to the last bit.
    """
    companies: list[list[int]] = []
    steps = [training_steps(training, int(size)) for size in sizes]
    longest = 0  # records of a teacher of the last company
    for number in sorted(range(len(steps)), key=lambda number: (steps[number], number)):
        last = companies[-1] if companies else []
        longest = max(longest, int(sizes[number]))
        alike = last and steps[last[0]] == steps[number]
        if alike and len(last) < _BLOCK_TEACHERS and (len(last) + 1) * longest <= most:
            last.append(number)
        else:
            companies.append([number])
            longest = int(sizes[number])
    return companies


def _group_pool(ensemble: Ensemble, parts: Rows) -> str:
    """Writes the pool in the order of its teachers, if that is not there; what it is made of."""
    path, made = ensemble.grouped_file, made_of(ensemble.pool, ensemble.parts_file)
    try:
        with GroupedPool(path, ensemble.pool, made):
            return made
    except DataError:  # none is there, or one of other records
        write_grouped(path, ensemble.pool, parts, made_of=made)
    return made


def forget_grouped(ensemble: Ensemble) -> None:
    """Deletes the pool in the order of its teachers, which only their training reads."""
    ensemble.grouped_file.unlink(missing_ok=True)


def cast_votes(ensemble: Ensemble, inputs: Tensor, *, alone: bool = False) -> Ballots | Choices:
    """What every teacher says about records, (n, *input_shape). Private.

    Args:
      ensemble: whose teachers are asked.
      inputs: public records, or those that a campaign selected.
      alone: whether each record is looked at by itself, as `load_inputs` says.
    """
    about, tuned, most = ensemble.model.task, _tuning(ensemble), ensemble.spec.rule.most_positives
    said = []
    for model in _teachers(ensemble):
        scores = scores_of(ensemble, model, inputs, alone=alone)
        if about is Task.SINGLE_LABEL:
            said.append(scores.argmax(axis=1))
            continue
        own = np.full(ensemble.model.classes, 0.5)
        if tuned is not None:
            # A function of one teacher and of public records: part of its ballot.
            per_label = ensemble.config.teachers.cut is Cut.PER_LABEL
            tuning_scores = scores_of(ensemble, model, tuned[0])
            own = best_thresholds(tuning_scores, answers_in(tuned[1].numpy()), per_label=per_label)
        said.append(np.packbits(surest(scores - own, most), axis=1))
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


def load_inputs(
    source: Source, rows: Sequence[int] | Rows, *, alone: bool = False
) -> tuple[list[str], Tensor]:
    """Ids and decoded records of some rows, in the order of the file.

    Args:
      source: whose records.
      rows: which of them.
      alone: whether each is read by itself: where who else is read with it is private, as the last
        bits of its features may depend on that.
    """
    wanted = np.sort(np.asarray(rows, dtype=np.int64))
    ids: list[str] = []
    inputs = []
    for batch in raw_batches(source, ["id", source.content.value]):
        mine = np.intersect1d(wanted, batch.rows) - batch.first_row
        if mine.size:
            part = batch.table.take(mine)
            ids += [str(record_id) for record_id in part.column(0).to_pylist()]
            column, each = part.column(1), 1 if alone else part.num_rows
            inputs += [
                records_of(source, column.slice(start, each), rows=None)
                for start in range(0, part.num_rows, each)
            ]
    if not inputs:
        raise DataError(f"{source.name} has none of the records that are asked for")
    return ids, torch.cat(inputs)


def _teachers(ensemble: Ensemble) -> Iterator[nn.Module]:
    count = ensemble.config.teachers.count
    with tqdm(total=count, desc="asking teachers", unit="model", disable=None, leave=False) as bar:
        for number in range(count):
            model = build_model(_seeded(ensemble.model, 0, number))
            model.load_state_dict(teacher_weights(ensemble.teacher_file(number)))
            yield model.to(ensemble.device)
            bar.update()


def teacher_weights(path: Path) -> dict[str, Tensor]:
    """Weights of a teacher.

    Raises:
      DataError: they are not there, or damaged.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError.before_release(
            f"the teacher {path} is missing or damaged; restore it from a backup (teachers are "
            "never pushed)"
        ) from error


def scores_of(
    ensemble: Ensemble, model: nn.Module, inputs: Tensor, *, alone: bool = False
) -> NDArray[np.float64]:
    """Probabilities that a model gives to records, (n, classes); `alone` as in `load_inputs`."""
    batch = 1 if alone else ensemble.config.runtime.physical_batch
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
    count = ensemble.config.teachers.count if ensemble.has_teachers else 0
    return [ensemble.teacher_file(number) for number in range(count)]


TEACHERS = RepeatableTraining[Ensemble](
    name="teachers",
    train=train_teachers,
    makes=_teacher_files,
    require=require_held,
)
