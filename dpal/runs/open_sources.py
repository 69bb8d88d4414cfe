"""Pool, validation set and public records, opened as a campaign reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpal.canonical import digest
from dpal.config.campaign import CampaignConfig
from dpal.config.data import ContentChoice
from dpal.config.improvement_start import PublicDataConfig
from dpal.config.validation import held_out_share
from dpal.data.held_out import HeldOutShare
from dpal.data.importing.same_columns import require_same_columns
from dpal.data.parquet import schema_of
from dpal.data.sources import Content, Role, Source, open_source
from dpal.data.texts import TextEncoding
from dpal.errors import DataError
from dpal.features.extractors import build_extractor, embeds_texts, text_encoding
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.features.stored_features import StoredFeatures
from dpal.files.stored_objects import Place
from dpal.labels import Task
from dpal.runs.kinds import folder_of


def open_sources(config: CampaignConfig) -> tuple[Source, Source]:
    """Looks at the files of a campaign: the pool and the validation set.

    Raises:
      DataError: a file is missing or not of a kind that is read, or columns became other numbers
        in one than in another.
    """
    pool, validation = open_pool_alone(config), open_validation(config)
    require_alike(pool, validation)
    return pool, validation


def require_alike(*sources: Source) -> None:
    """Requires that the numbers of records mean the same in all files of some sources.

    Raises:
      DataError: columns became other numbers in one file than in another.
    """
    tables = [source for source in sources if source.content is Content.FEATURES]
    require_same_columns(path for source in tables for path in source.paths)


def require_two_classes(classes: int, task: Task) -> None:
    """Requires that there is something to tell apart.

    Args:
      classes: that the validation set has, or names.
      task: what a label is; of several labels one is enough.

    Raises:
      DataError: there is one class, or none.
    """
    if task is Task.SINGLE_LABEL and classes < 2:
        raise DataError(
            "the validation set has labels of one class alone, and a model tells two or more "
            "apart; use one with records of each class, or name all classes in its class_names"
        )


def open_pool_alone(config: CampaignConfig) -> Source:
    """Looks at the pool alone, as a machine does that measures nothing.

    Raises:
      DataError: a file is missing or not of a kind that is read.
    """
    return _open(config, config.data.pool, Role.POOL)


def open_validation(config: CampaignConfig) -> Source:
    """Looks at the validation set alone, which is a file or a share of the pool's."""
    place = config.data.validation
    return _open(config, config.data.pool if place is None else place, Role.VALIDATION)


def open_public(config: CampaignConfig, public: PublicDataConfig) -> Source:
    """Looks at public records that may be labeled, read as the private ones of a campaign are.

    Raises:
      DataError: a file is missing, not of a kind that is read, or lacks a column.
    """
    data = config.data.model_copy(update={"label_column": public.label_column})
    settings = config.model_copy(update={"data": data, "validation": None})
    source = _open(settings, public.pool, Role.POOL)
    column = public.provenance_column
    if column is not None:
        for path in source.paths:
            if column not in schema_of(path).names:
                raise DataError(
                    f"{path} has no column {column!r}, which public.provenance_column names; "
                    "correct it, or leave it and public.irrelevant out"
                )
    return source


def _open(config: CampaignConfig, place: Place | list[Place], role: Role) -> Source:
    chosen = config.data.content
    source = open_source(
        place,
        role,
        label_column=config.data.label_column,
        encoding=_encoding(config),
        content=None if chosen is ContentChoice.AUTO else Content(chosen),
    )
    spec = config.data.to_extractor()
    extractor = build_extractor(spec, source.content, texts=len(source.texts))
    if extractor is not None and spec.kind is ExtractorKind.BACKBONE:
        extractor = StoredFeatures(extractor, digest(spec), _features_file(config, source, spec))
    return holding_out(
        replace(source, extractor=extractor), held_out_share(config.data, config.validation)
    )


def _features_file(config: CampaignConfig, source: Source, spec: ExtractorSpec) -> Path:
    """Where a campaign's features of a source lie, once its records were embedded."""
    named = digest([spec, source.role.value, [str(path.resolve()) for path in source.paths]])
    return folder_of(config).features / f"{named[:16]}.arrow"


def holding_out(source: Source, held_out: HeldOutShare | None) -> Source:
    """The same in which a share of the records is held out, where there is one.

    Raises:
      DataError: the file says itself which ones are, or has no column of groups.
    """
    if held_out is None:
        return source
    if source.has_split:
        raise DataError.before_release(
            f"{source.name} says in its column 'split' which records are held out, and "
            "validation.share would hold out others; name the file as data.validation as well "
            "(validation: {protected: true}), or write it without that column"
        )
    for path in source.paths:
        if held_out.column not in schema_of(path).names:
            raise DataError.before_release(
                f"{path} has no column {held_out.column!r} (data.group_column), whose groups "
                "validation.share keeps together; name another column"
            )
    return replace(source, held_out=held_out)


def _encoding(config: CampaignConfig) -> TextEncoding | None:
    """What turns texts into records: the tokenizer beside a text model's public weights."""
    extractor = config.data.to_extractor()
    if embeds_texts(extractor):
        return text_encoding(extractor)
    model = config.model
    if not model.architecture.reads_texts or model.weights is None:
        return None
    return TextEncoding(folder=model.weights, max_tokens=model.max_tokens)
