"""What a model is, beside its weights: enough to build it, and to read records for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpal.canonical import plain
from dpal.config.campaign import CampaignConfig
from dpal.data.importing.recipe import RECIPE
from dpal.data.parquet import schema_of
from dpal.data.pictures import Shape, picture_shape
from dpal.data.readers import raw_batches
from dpal.data.sources import Content, Source
from dpal.features.spec import ExtractorSpec
from dpal.models.spec import ModelSpec
from dpal.runs.absolute_paths import with_absolute_paths


def describe_model(
    spec: ModelSpec, extractor: ExtractorSpec, source: Source, class_names: Sequence[str]
) -> dict[str, Any]:
    """A model as JSON: its architecture, and how records of its kind are read.

    Args:
      spec: its architecture.
      extractor: what makes its features.
      source: records of the kind that it takes.
      class_names: names in class order; empty when the data has none.
    """
    recipe = (schema_of(source.paths[0]).metadata or {}).get(RECIPE)
    return {
        "spec": plain(spec),
        "content": source.content.value,
        "deep": source.deep,
        "texts": list(source.texts),
        "extractor": plain(extractor),
        "class_names": list(class_names),
        "recipe": None if recipe is None else recipe.decode(),
    }


def model_files(reading: CampaignConfig) -> dict[str, str | None]:
    """Where public files lie without which a model cannot be built, nor a record be read.

    Args:
      reading: settings that say how its records are read.
    """
    settings = with_absolute_paths(reading)
    backbone, weights = settings.data.backbone, settings.model.weights
    return {
        "backbone": None if backbone is None else str(backbone.weights),
        "weights": None if weights is None else str(weights),
    }


def shape_of_pictures(source: Source) -> Shape | None:
    """Channels, height and width of pictures, as all of a source must have; None of others."""
    if source.content is not Content.IMAGE:
        return None
    for batch in raw_batches(source, [Content.IMAGE.value]):
        return picture_shape(batch.table.column(0)[0].as_py())
    return None
