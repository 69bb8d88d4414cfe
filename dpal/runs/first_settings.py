"""First settings for data that nobody has planned on yet: what is looked at, and what follows.

What decides them is public: the columns of the files, how many records there are and of which
shape, whether the pool has labels at all, and the validation set where it is declared public. So
settings tell nothing that a plan would not. What they choose was tried on public data sets
(docs/from-files.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from dpal.data.importing.recipe import tells_of_held_out
from dpal.data.inspect_rows import Inventory, inspect, require_match
from dpal.data.public_statistics import public_statistics
from dpal.data.sources import Content, Role, Source, missing_label, open_source
from dpal.errors import ConfigError, DataError
from dpal.labels import Task

_LEAST_RECORDS = 50
_ALL_BELOW = 1000  # labels that a smaller pool gives at once
_MOST_LABELS = 4000  # of a pool that is labeled already
_BY_PEOPLE = 1000  # where people have to label
_PASSES = 30  # over half of the labels each step: sixty steps
_SCATTERED = 64  # pixels of a side, above which wavelet features outgrow memory
_UNEVEN = 10.0  # by which scales of features may differ before they are normalised


@dataclass(frozen=True, kw_only=True)
class DataLook:
    """What is public about data.

    Attributes:
      pool, validation: the files.
      label_column: in both.
      content: what a record is.
      task: what a label is.
      classes: classes or labels.
      rows: records of the pool.
      validation_rows: records of the validation set.
      shape: of a record.
      labeled: whether all of the pool has labels.
      uneven: whether features differ in scale in a validation set that is public; False of one
        that is not.
      grouped: whether records have a column `group`.
      told: whether held-out records decided how the columns of a table became numbers.
    """

    pool: Path
    validation: Path
    label_column: str
    content: Content
    task: Task
    classes: int
    rows: int
    validation_rows: int
    shape: tuple[int, ...]
    labeled: bool
    uneven: bool
    grouped: bool
    told: bool


def look_at(
    pool: Path,
    validation: Path | None = None,
    *,
    label_column: str = "label",
    is_public: bool = False,
    on_rows: Callable[[int], object] = lambda count: None,
) -> DataLook:
    """Looks at data as a plan does: every record once, and what is kept of them is public.

    Args:
      pool: a pool, or one file with pool and validation set by its column `split`.
      validation: labeled records of a file of their own; None: the pool's file has both.
      label_column: name of the labels' column.
      is_public: whether the validation set is declared public; else no value of it decides.
      on_rows: told how many more records were looked at.

    Raises:
      DataError: a file is no pool, or nothing is held out to measure models.
    """
    if pool.suffix != ".parquet" and not pool.is_dir():
        raise DataError(
            f"{pool} is no Parquet file; make one of it first: dpal import {pool} --to "
            f"{pool.stem}.parquet --split 0.2"
        )
    source = open_source(pool, Role.POOL, label_column=label_column)
    schema = pq.read_schema(source.paths[0])
    if validation is None and not source.has_split:
        raise DataError(
            f"{pool} does not say which records are held out to measure models; give a file of "
            f"them with --validation, or hold some out: dpal import {pool} --to NAME.parquet "
            "--split 0.2"
        )
    if validation is None and source.label_column is None:
        raise missing_label(schema, str(pool), label_column, "or use a file with labels")
    judged = open_source(validation or pool, Role.VALIDATION, label_column=label_column)
    if judged.content is Content.TEXT:
        held, measured = _texts(source), _texts(judged)
    else:
        held, measured = inspect(source, on_rows=on_rows), inspect(judged, on_rows=on_rows)
        if source.label_column is None:
            held = Inventory(**{**vars(held), "task": measured.task})
        require_match(held, measured)
    if held.rows < _LEAST_RECORDS:
        raise DataError(
            f"{pool} has {held.rows} records, and private training needs {_LEAST_RECORDS} at least"
        )
    return DataLook(
        pool=pool,
        validation=validation or pool,
        label_column=label_column,
        content=source.content,
        task=measured.task,
        classes=max(measured.classes, len(judged.class_names)),
        rows=held.rows,
        validation_rows=measured.rows,
        shape=measured.input_shape,
        labeled=held.fully_labeled,
        uneven=is_public and source.content is Content.FEATURES and _is_uneven(judged),
        grouped="group" in schema.names,
        told=any(tells_of_held_out(path) for path in (*source.paths, *judged.paths)),
    )


def _texts(source: Source) -> Inventory:
    """What there is to know of texts without their tokenizer."""
    rows, labeled, classes = 0, source.label_column is not None, 0
    from dpal.data.label_columns import classes_in
    from dpal.data.readers import raw_batches

    for batch in raw_batches(source, [source.label_column or "id"]):
        rows += batch.table.num_rows
        if source.label_column:
            column = batch.table.column(0)
            labeled &= column.null_count == 0
            classes = classes_in(column, source.task, known=classes, rows=batch.numbers)
    return Inventory(
        rows=rows, input_shape=(2, 128), task=source.task, classes=classes, fully_labeled=labeled
    )


def _is_uneven(validation: Source) -> bool:
    """Whether features of public records are far from mean 0 and deviation 1."""
    mean, std = public_statistics(validation)
    far = max(abs(value) / spread for value, spread in zip(mean, std, strict=True))
    return max(std) > _UNEVEN or (far > _UNEVEN and max(std) / min(std) > _UNEVEN)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, and how long.

    Attributes:
      extractor, model: as settings name them.
      learning_rate, max_grad_norm: of the training.
      optimizer: of the training.
      why: in words, of model and rate.
    """

    extractor: str
    model: str
    learning_rate: float
    max_grad_norm: float
    why: str
    optimizer: str = "sgd"
    epochs: int = _PASSES


def _training(look: DataLook, weights: Path | None) -> Training:
    if look.content is Content.TEXT:
        if weights is None:
            raise ConfigError(
                "texts are read by a public pretrained model; name its folder (config.json, "
                "model.safetensors, tokenizer.json) with --weights"
            )
        return Training(
            extractor="none", model="text_classifier", learning_rate=0.3, max_grad_norm=1.0,
            epochs=20,
            why="a public pretrained model, of which the last layers train",
        )  # fmt: skip
    if look.content is Content.FEATURES:
        return Training(
            extractor="none", model="logistic", learning_rate=4 if look.rows > _ALL_BELOW else 1,
            max_grad_norm=0.3 if look.task is Task.SINGLE_LABEL else 0.1,
            why="few weights: noise is added to each of them in every step",
        )  # fmt: skip
    if max(look.shape[1:]) <= _SCATTERED and min(look.shape[1:]) > 8:
        return Training(
            extractor="scattering", model="logistic", learning_rate=4, max_grad_norm=0.1,
            why="wavelet features cost no budget, and leave few weights to learn",
        )  # fmt: skip
    return Training(
        extractor="none", model="resnet9", learning_rate=0.002, max_grad_norm=1.0,
        optimizer="nadam", epochs=35,
        why="pictures of this size; smaller ones (dpal import --size 32x32) can use features that "
        "cost no budget",
    )  # fmt: skip


def first_settings(
    look: DataLook,
    name: str,
    *,
    why_public: str | None,
    epsilon: float = 8.0,
    labels: int | None = None,
    weights: Path | None = None,
) -> str:
    """Settings of a campaign on data, as commented YAML.

    Args:
      look: what is public about it.
      name: of the campaign.
      why_public: why everybody may see the records of the validation set; None protects them, and
        figures get noise.
      epsilon: the promise.
      labels: that may be bought in all; None decides by the pool.
      weights: folder of a public pretrained model, for texts.

    Raises:
      ConfigError: there are fewer records than labels, texts and no pretrained model, or the
        held-out records are not public and have told already how columns become numbers.
    """
    if why_public is None and look.told:
        raise ConfigError(
            "held-out records say of this table how its columns become numbers, so that everybody "
            "must be allowed to see them; say what makes that true with --why-public, or import "
            "the table like an earlier one (dpal import --like) that was public"
        )
    if labels is not None and not 2 <= labels <= look.rows:
        raise ConfigError(f"--labels {labels:,} is not between 2 and the {look.rows:,} records of "
                          f"{look.pool}")  # fmt: skip
    usual = min(look.rows, max(_ALL_BELOW, look.rows // 2), _MOST_LABELS)
    wanted = labels or (usual if look.labeled else min(look.rows // 2, _BY_PEOPLE))
    training = _training(look, weights)
    initial, queries, acquisition, why = _buying(look, wanted)
    batch = max(1, min(initial, math.ceil(wanted / 2)))
    phases = 1 + len(queries)
    epochs = max(4, round(training.epochs / phases))
    normalisation = [
        "  normalisation:",
        _commented("    kind: validation", "scales differ: measured there, never on the pool"),
    ] if look.uneven else []  # fmt: skip
    group = [
        "  # Records belong to groups (column group). To protect all that one group has:",
        "  # group_column: group",
        "  # and below privacy: unit: group; the schedule counts groups then.",
    ] if look.grouped else []  # fmt: skip
    what = "classes" if look.task is Task.SINGLE_LABEL else "labels"
    lines = [
        f"# {look.rows:,} records to learn from, {look.validation_rows:,} held out; "
        f"{look.classes} {what}; {look.content} of shape {_shape(look)}.",
        f"# Look first: dpal plan {name}.yaml    Run: dpal run {name}.yaml",
        "",
        f"name: {name}",
        "",
        "data:",
        f"  pool: {_text(look.pool)}",
        _commented(
            f"  validation: {_text(look.validation)}", "rows with split test, if it has one"
        ),
        f"  label_column: {_text(look.label_column)}",
        _commented(f"  extractor: {training.extractor}", "fixed features, free; none: as it is"),
        *normalisation,
        *group,
        "",
        *_whose_validation(why_public),
        "",
        "labeler:",
        _commented(*_labeler(look)),
        "",
        "privacy:",
        _commented(f"  epsilon: {epsilon:g}", "what any record of the pool may lose"),
        _commented("  delta: null", "1 / (10 x records)"),
        "",
        _commented("schedule:", f"{wanted:,} labels in all; more of them mean less noise"),
        f"  initial: {initial}",
        f"  queries: {queries}",
        _commented(
            f"  batch_size: {batch}", "half of the labels: noise is per step, so large batches"
        ),
        _commented(f"  epochs_per_phase: {epochs}", "and few steps"),
        "",
        _commented(f"acquisition: {acquisition}", why),
        "",
        "model:",
        _commented(f"  name: {training.model}", training.why),
        *([] if weights is None else [f"  weights: {_text(weights)}"]),
        "",
        "training:",
        f"  optimizer: {training.optimizer}",
        f"  learning_rate: {training.learning_rate:g}",
        "  momentum: 0.9",
        _commented(
            f"  max_grad_norm: {training.max_grad_norm:g}",
            "longest gradient of a record; noise is in proportion",
        ),
    ]
    return "\n".join(lines) + "\n"


def _commented(setting: str, why: str) -> str:
    return f"{setting:<31} # {why}"


def _whose_validation(why_public: str | None) -> list[str]:
    if why_public is None:
        return [
            _commented("validation:", "whose records these are; or public: true, and why"),
            _commented("  protected: true", "figures on them get noise, and are charged"),
        ]
    return [
        _commented("validation:", "whose records these are; figures on them leave as they are"),
        "  public: true",
        f"  why: {_text(why_public)}",
    ]


def _labeler(look: DataLook) -> tuple[str, str]:
    if look.labeled:
        return "  kind: oracle", "the file has all labels; each that is used is paid for"
    return "  kind: file", "people fill in the labels that are asked for"


def _buying(look: DataLook, labels: int) -> tuple[int, list[int], str, str]:
    """How labels are bought: at random, or part of them where the model is unsure."""
    can_choose = look.task is Task.SINGLE_LABEL and look.classes > 2 and look.rows >= 3 * labels
    if look.content is Content.IMAGE and can_choose and labels >= 500:
        query = labels // 5
        return (
            labels - 2 * query, [query, query], "margin",
            "two fifths are bought where the model is least sure",
        )  # fmt: skip
    return labels, [], "random", "free: choosing records would take budget from training"


def _shape(look: DataLook) -> str:
    if look.content is Content.TEXT:
        return "words"
    return " x ".join(map(str, look.shape))


def _text(value: Path | str) -> str:
    """A text as YAML, whatever is in it."""
    return json.dumps(str(value), ensure_ascii=False)
