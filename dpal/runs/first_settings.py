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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpal.config.campaign import parse_config
from dpal.config.data import BackboneConfig, DataConfig, ExtractorKind
from dpal.data.groups import count_groups, read_groups
from dpal.data.held_out import HeldOutShare
from dpal.data.importing.recipe import tells_of_held_out
from dpal.data.inspect_rows import Inventory, inspect, require_match
from dpal.data.parquet import schema_of
from dpal.data.sources import Content, Role, Source, missing_label, open_source
from dpal.data.validation_checks import require_same_names
from dpal.errors import ConfigError, DataError
from dpal.features.extractors import feature_width, scattered_width, text_feature_width
from dpal.features.library_backbones import TRANSFORMERS_IMAGE, TRANSFORMERS_TEXT, all_backbones
from dpal.features.text_sizes import is_bert
from dpal.files.stored_objects import Place
from dpal.labels import Task
from dpal.models.architectures import backbones
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.privacy import Unit
from dpal.runs.linear_step_and_clipping import linear_rates
from dpal.runs.open_sources import require_alike, require_two_classes

_LEAST_RECORDS = 50
_HELD_OUT = 0.2  # of records of which nothing says which ones are
_MOST_LABELS = 4000  # of a pool that is labeled already
_BY_PEOPLE = 1000  # where people have to label
_PASSES = 60  # over half of the labels each step: 120 steps
_SCATTERED = 40  # pixels of a side, above which pictures are made coarser first
_LEAST_SIDE = 8  # pixels, of which wavelets see no inside
_MOMENTUM = 0.9
_OWN_TEXTS = "text_classifier"  # dpal's own BERT


@dataclass(frozen=True, kw_only=True)
class DataLook:
    """What is public about data.

    Attributes:
      pool: the file.
      validation: what names the held-out records; None where `_HELD_OUT` of the pool is.
      label_column: in both.
      content: what a record is.
      task: what a label is.
      classes: classes or labels.
      rows: records of the pool.
      validation_rows: records of the validation set.
      shape: of a record.
      labeled: whether all of the pool has labels.
      texts: how many texts a record has.
      group_column: that says which records belong together; None where there is none.
      groups: how many there are in the pool; None where some records, or held-out ones, have none.
      told: whether held-out records decided how the columns of a table became numbers.
    """

    pool: Place
    validation: Place | None
    label_column: str
    content: Content
    task: Task
    classes: int
    rows: int
    validation_rows: int
    shape: tuple[int, ...]
    labeled: bool
    texts: int
    group_column: str | None
    groups: int | None
    told: bool

    @property
    def owners(self) -> int:
        """What schedules count: groups, where these are protected as a whole, or records."""
        return self.groups if self.protects_groups and self.groups else self.rows

    @property
    def protects_groups(self) -> bool:
        """Whether there are groups, and enough of them to learn from."""
        return self.groups is not None and self.groups >= _LEAST_RECORDS


def look_at(
    pool: Place,
    validation: Place | None = None,
    *,
    label_column: str = "label",
    group_column: str | None = "group",
    on_rows: Callable[[int], object] = lambda count: None,
) -> DataLook:
    """Looks at data as a plan does: every record once, and what is kept of them is public.

    Args:
      pool: a pool, or one file with pool and validation set by its column `split`.
      validation: labeled records of a file of their own; None: the pool's file has both, or a share
        of it is to be held out.
      label_column: name of the labels' column.
      group_column: that says which records belong together, where there is such a column; None
        leaves each record alone.
      on_rows: told how many more records were looked at.

    Raises:
      DataError: a file is no pool, or no record with a label can be held out to measure models.
    """
    if pool.suffix.lower() != ".parquet" and not pool.is_dir():
        raise DataError(
            f"{pool} is no Parquet file; make one of it first: dpal import {pool} --to "
            f"{pool.stem}.parquet --split 0.2"
        )
    source = open_source(pool, Role.POOL, label_column=label_column)
    schema = schema_of(source.paths[0])
    if validation is None and source.label_column is None:
        raise missing_label(schema, str(pool), label_column, "or use a file with labels")
    judged = open_source(validation or pool, Role.VALIDATION, label_column=label_column)
    require_alike(source, judged)
    require_same_names(source, judged)
    shares = validation is None and not source.has_split
    grouped = group_column is not None and group_column in schema.names
    has_groups = grouped and _has_groups(source, judged, str(group_column))
    if shares:
        coin = HeldOutShare(share=_HELD_OUT, column=str(group_column) if has_groups else "id")
        source, judged = replace(source, held_out=coin), replace(judged, held_out=coin)
    held, measured = inventory(source, on_rows=on_rows), inventory(judged, on_rows=on_rows)
    if judged.content is not Content.TEXT:
        if source.label_column is None:
            held = Inventory(**{**vars(held), "task": measured.task})
        require_match(held, measured)
    classes = max(measured.classes, len(judged.class_names))
    require_two_classes(classes, measured.task)
    if held.rows < _LEAST_RECORDS:
        raise DataError(
            f"{pool} has {held.rows} records, and private training needs {_LEAST_RECORDS} at least"
        )
    return DataLook(
        pool=pool,
        validation=None if shares else validation or pool,
        label_column=label_column,
        content=source.content,
        task=measured.task,
        classes=classes,
        rows=held.rows,
        validation_rows=measured.rows,
        shape=measured.input_shape,
        labeled=held.fully_labeled,
        texts=len(source.texts),
        group_column=group_column if grouped else None,
        groups=count_groups(read_groups(source, str(group_column))) if has_groups else None,
        told=any(tells_of_held_out(path) for path in (*source.paths, *judged.paths)),
    )


def _has_groups(pool: Source, judged: Source, column: str) -> bool:
    """Whether each record has a group, also of those that models are measured on."""
    try:
        for source in (pool, judged):
            read_groups(source, column)
    except DataError:
        return False
    return True


def inventory(
    source: Source, *, on_rows: Callable[[int], object] = lambda count: None
) -> Inventory:
    """What there is to know of records before anything is decided.

    Args:
      source: that is read once.
      on_rows: told how many more records were looked at; not of texts.
    """
    return _texts(source) if source.content is Content.TEXT else inspect(source, on_rows=on_rows)


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


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, and how long.

    Attributes:
      extractor, model: as settings name them.
      why: in words, of the model.
      width: numbers of a record of mean square about 1, of which rates of a linear model follow;
        None where nothing is known of them, or the model is another.
      logit_noise: of such a model, how far noise may move what it says.
      normalises: whether numbers are centred and scaled by the validation set.
      learning_rate, max_grad_norm: where they do not follow.
      backbone: settings of the public model that makes features, if one does.
    """

    extractor: str
    model: str
    why: str
    width: int | None = None
    logit_noise: float = 1.5
    normalises: bool = False
    learning_rate: float = 1.0
    max_grad_norm: float = 1.0
    backbone: BackboneConfig | None = None


def training_for(
    look: DataLook,
    weights: Path | None = None,
    backbone: str | None = None,
    *,
    is_public: bool = True,
) -> Training:
    """Features and a model that suit records.

    Args:
      look: what is public about them.
      weights: file or folder of a public pretrained model of pictures or texts.
      backbone: its name; None goes by what lies there.
      is_public: whether everybody may see the held-out records.

    Raises:
      DataError: the public model cannot be read.
      ConfigError: it is of other records, or nothing says which model the weights are of.
    """
    if look.content is Content.TEXT:
        return _of_texts(look, weights, backbone)
    if look.content is Content.IMAGE and weights is not None:
        return _of_backbone(look, weights, backbone)
    if weights is not None or backbone is not None:
        raise ConfigError(
            f"--weights and --backbone name a public model of pictures or texts, and {look.pool} "
            f"holds {look.content}; leave them out, or name both for pictures"
        )
    if look.content is Content.FEATURES:
        why = "few weights: noise is added to each of them in every step"
        return _of_numbers(look, why, is_public=is_public)
    if min(look.shape[1:]) <= _LEAST_SIDE:
        why = "pictures this small have no inside for wavelets: pixels are learned from"
        return _of_numbers(look, why, is_public=is_public)
    channels, *sides = look.shape
    coarse = max(sides) > _SCATTERED
    return Training(
        extractor="coarse_scattering" if coarse else "scattering",
        model="logistic",
        width=scattered_width(channels, sides, coarse=coarse),
        logit_noise=4.0,
        why="wavelet features cost no budget, and leave few weights to learn",
    )


def _of_numbers(look: DataLook, why: str, *, is_public: bool) -> Training:
    """Logistic regression on numbers as they are, or brought to one scale."""
    if is_public:
        width = math.prod(look.shape)
        return Training(extractor="none", model="logistic", width=width, normalises=True, why=why)
    return Training(  # of what scale they are is nobody's business
        extractor="none", model="logistic", learning_rate=4 if look.owners > 1000 else 1,
        max_grad_norm=0.3 if look.task is Task.SINGLE_LABEL else 0.1, why=why,
    )  # fmt: skip


def _of_backbone(look: DataLook, weights: Path, named: str | None) -> Training:
    """Logistic regression on what a public model of pictures makes of them.

    Raises:
      ConfigError: nothing says which model the weights are of.
    """
    if named is None and not weights.is_dir():
        raise ConfigError(
            f"{weights} does not say which model its numbers are of; name it with --backbone, such "
            f"as timm:vit_small_patch14_dinov2.lvd142m, or one of {', '.join(backbones())}"
        )
    backbone = _named_backbone(named or TRANSFORMERS_IMAGE.name, weights)
    data = DataConfig(extractor=ExtractorKind.BACKBONE, backbone=backbone)
    return Training(
        extractor="backbone", model="logistic",
        width=feature_width(data.to_extractor(), look.shape), logit_noise=2.0, backbone=backbone,
        why="few weights on what a public pretrained model makes of pictures, free",
    )  # fmt: skip


def _named_backbone(named: str, weights: Path) -> BackboneConfig:
    """Settings of a backbone by its name; of timm the model's own name follows a colon."""
    model, _, variant = named.partition(":")
    try:
        return BackboneConfig(model=model, weights=weights, variant=variant or None)
    except ValidationError as error:
        raise ConfigError(
            f"--backbone {named!r} names no model that is read here; take one of "
            f"{', '.join(all_backbones())}, and of timm its own name behind a colon, such as "
            "timm:vit_small_patch14_dinov2.lvd142m"
        ) from error


def _of_texts(look: DataLook, weights: Path | None, named: str | None) -> Training:
    if weights is None:
        raise ConfigError(
            "texts are read by a public pretrained model; name its folder (config.json, "
            "model.safetensors, tokenizer.json) with --weights"
        )
    width = text_feature_width(weights, look.texts)
    usual = _OWN_TEXTS if is_bert(weights) else TRANSFORMERS_TEXT.name
    return Training(
        extractor="backbone", model="logistic", width=width, logit_noise=2.0,
        backbone=_named_backbone(named or usual, weights),
        why="few weights on what a public pretrained model makes of texts, free",
    )  # fmt: skip


def first_settings(
    look: DataLook,
    name: str,
    *,
    why_public: str | None,
    epsilon: float = 8.0,
    labels: int | None = None,
    weights: Path | None = None,
    backbone: str | None = None,
) -> str:
    """Settings of a campaign on data, as commented YAML.

    Args:
      look: what is public about it.
      name: of the campaign.
      why_public: why everybody may see the records of the validation set; None protects them, and
        figures get noise.
      epsilon: the promise.
      labels: that may be bought in all; None decides by the pool.
      weights: file or folder of a public pretrained model of pictures or texts.
      backbone: its name; None goes by what lies there.

    Raises:
      DataError: the public model cannot be read.
      ConfigError: nothing says which model the weights are of, there are fewer records than labels,
        texts and no pretrained model, the held-out records are not public and have told already how
        columns become numbers, or they are called public and are a share of the pool.
    """
    if why_public is not None and look.validation is None:
        raise ConfigError(
            f"--why-public is about held-out records, and {look.pool} does not say which ones are; "
            "give a file of them with --validation, or leave --why-public out: a share of the pool "
            "is held out, and stays protected"
        )
    if why_public is None and look.told:
        raise ConfigError(
            "held-out records say of this table how its columns become numbers, so that everybody "
            "must be allowed to see them; say what makes that true with --why-public, or import "
            "the table like an earlier one (dpal import --like) that was public"
        )
    owners, counted = look.owners, "groups" if look.protects_groups else "records"
    if labels is not None and not 2 <= labels <= owners:
        raise ConfigError(f"--labels {labels:,} is not between 2 and the {owners:,} {counted} of "
                          f"{look.pool}")  # fmt: skip
    usual = min(owners, _MOST_LABELS)
    by_people = max(2, min(owners // 2, _BY_PEOPLE * owners // look.rows))
    wanted = labels or (usual if look.labeled else by_people)
    training = training_for(look, weights, backbone, is_public=why_public is not None)
    initial, queries, acquisition, why = _buying(look, wanted)
    batch = max(1, min(initial, math.ceil(wanted / 2)))
    phases = 1 + len(queries)
    epochs = max(4, round(_PASSES / phases))
    schedule = {"initial": initial, "queries": queries, "batch_size": batch,
                "epochs_per_phase": epochs}  # fmt: skip
    rate, bound = training.learning_rate, training.max_grad_norm
    if training.width is not None:
        plan = _planned(look, epsilon, schedule, acquisition, training.width)
        rates = linear_rates(plan, width=training.width, momentum=_MOMENTUM,
                             logit_noise=training.logit_noise)  # fmt: skip
        rate, bound = rates.learning_rate, rates.max_grad_norm
    normalisation = [
        "  normalisation:",
        _commented("    kind: validation", "one scale: measured there, never on the pool"),
    ] if training.normalises else []  # fmt: skip
    public = training.backbone
    made_by = [] if public is None else [
        "  backbone:",
        f"    model: {public.model}",
        *([] if public.variant is None else [f"    variant: {_text(public.variant)}"]),
        f"    weights: {_text(public.weights)}",
    ]  # fmt: skip
    group, unit = _groups(look)
    bought = f"{wanted:,} " + ("groups with all that they have" if unit else "labels in all")
    of = f" of {owners:,} groups" if unit else ""
    named = [] if look.validation is None else [
        _commented(f"  validation: {_text(look.validation)}", "rows with split test, if it has one")
    ]  # fmt: skip
    what = "classes" if look.task is Task.SINGLE_LABEL else "labels"
    lines = [
        f"# {look.rows:,} records{of} to learn from, {look.validation_rows:,} held out; "
        f"{look.classes} {what}; {look.content} of shape {_shape(look)}.",
        f"# Look first: dpal plan {name}.yaml    Run: dpal run {name}.yaml",
        "",
        f"name: {name}",
        "",
        "data:",
        f"  pool: {_text(look.pool)}",
        *named,
        f"  label_column: {_text(look.label_column)}",
        _commented(f"  extractor: {training.extractor}", "fixed features, free; none: as it is"),
        *made_by,
        *normalisation,
        *group,
        "",
        *_whose_validation(look, why_public),
        "",
        "labeler:",
        _commented(*_labeler(look)),
        "",
        "privacy:",
        _commented(f"  epsilon: {epsilon:g}", f"what any {counted[:-1]} of the pool may lose"),
        _commented("  delta: null", f"1 / (10 x {counted})"),
        *unit,
        "",
        _commented("schedule:", f"{bought}; more of them mean less noise"),
        f"  initial: {initial}",
        f"  queries: {queries}",
        _commented(f"  batch_size: {batch}", "half of them: noise is per step, so large batches"),
        _commented(f"  epochs_per_phase: {epochs}", "and few steps"),
        "",
        _commented(f"acquisition: {acquisition}", why),
        "",
        "model:",
        _commented(f"  name: {training.model}", training.why),
        "",
        "training:",
        "  optimizer: sgd",
        _commented(f"  learning_rate: {rate:g}", "the more labels, and the less noise, the larger")
        if training.width is not None
        else f"  learning_rate: {rate:g}",
        f"  momentum: {_MOMENTUM:g}",
        _commented(
            f"  max_grad_norm: {bound:g}", "longest gradient of a record; noise is in proportion"
        ),
    ]
    return "\n".join(lines) + "\n"


def _planned(
    look: DataLook, epsilon: float, schedule: dict[str, Any], acquisition: str, width: int
) -> Plan:
    """A plan with the noise that one of these settings will have: rates change none of it."""
    unit = Unit.GROUP if look.protects_groups else Unit.RECORD
    config = parse_config(
        {
            "name": "first",
            "data": {"group_column": look.group_column if look.protects_groups else None},
            "privacy": {"epsilon": epsilon, "unit": unit},
            "schedule": schedule,
            "acquisition": acquisition,
            "model": {"name": "logistic"},
        }
    )
    spec = config.to_spec(
        pool_size=look.owners, input_shape=(width,), classes=look.classes, task=look.task, unit=unit
    )
    return certified_or_next_best(spec).plan


def _groups(look: DataLook) -> tuple[list[str], list[str]]:
    """What settings say of groups below data, and below privacy."""
    if look.group_column is None:
        return [], []
    column = _text(look.group_column)
    if look.protects_groups:
        return (
            [_commented(f"  group_column: {column}", "whose a record is; it is no feature")],
            [
                _commented(
                    "  unit: group", "all that one group has, such as the visits of a patient"
                )
            ],
        )
    why = "too few, or not of all records"
    return [
        f"  # Records belong to groups (column {column}; {why}). To protect all that one has:",
        f"  # group_column: {column}",
        "  # and below privacy: unit: group; schedule, batch and rates are of groups then.",
    ], []


def _commented(setting: str, why: str) -> str:
    return f"{setting:<31} # {why}"


def _whose_validation(look: DataLook, why_public: str | None) -> list[str]:
    if look.validation is None:
        return [
            _commented("validation:", "nothing says which records are held out: a coin for each"),
            _commented(f"  share: {_HELD_OUT:g}", "protected: figures get noise, and are charged"),
        ]
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
    can_choose = look.task is Task.SINGLE_LABEL and look.classes > 2 and look.owners >= 3 * labels
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


def _text(value: Place | str) -> str:
    """A text as YAML, whatever is in it."""
    return json.dumps(str(value), ensure_ascii=False)
