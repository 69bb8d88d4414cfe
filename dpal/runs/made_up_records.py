"""Made-up records, for whoever needs some of a campaign's kind and may read none of its own."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from dpal.data.label_columns import stored_type
from dpal.data.sources import Content, Source, open_source
from dpal.errors import ConfigError
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.randomness import seeded

_RECORDS = 1000


def made_up_records(source: Source, spec: ModelSpec, folder: Path) -> Source:
    """Writes records like those of a source in kind, shape and classes, and in nothing else.

    Args:
      source: says what a record is; it is not read.
      spec: of the model that takes them.
      folder: where to write.

    Raises:
      ConfigError: records are texts, or features that an extractor makes, which are not made up.
    """
    if source.extractor is not None or source.content is Content.TEXT:
        raise ConfigError.before_release(
            "validation records are protected, and in their place an audit makes up features or "
            "pictures as a model takes them; here it takes texts or extracted features, so audit "
            "settings with public records (validation: {public: true, why: in words})"
        ).about("validation", "protected")
    rng = seeded(0, "made-up records")
    label = source.label_column or "label"
    size = math.prod(spec.input_shape)
    if source.content is Content.FEATURES:
        values = rng.normal(size=(_RECORDS, size)).astype(np.float32)
        records: Any = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), size)
    else:
        pixels = rng.integers(0, 256, (_RECORDS, *spec.input_shape), dtype=np.uint8)
        records = pa.array([_png(picture) for picture in pixels])
    path = folder / "made-up.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "id": [f"made-up-{number:05d}" for number in range(_RECORDS)],
        source.content.value: records,
        label: _labels(spec, rng),
    }
    pq.write_table(pa.table(columns), path)
    made = open_source(path, source.role, label_column=label)
    return replace(made, task=spec.task, class_names=source.class_names)


def _labels(spec: ModelSpec, rng: np.random.Generator) -> pa.Array:
    if spec.task is Task.SINGLE_LABEL:
        return pa.array(rng.integers(0, spec.classes, _RECORDS))
    several = rng.integers(0, 2, (_RECORDS, spec.classes))
    return pa.array(several.tolist(), stored_type(spec.task))


def _png(picture: NDArray[np.uint8]) -> bytes:
    """A picture (channels, height, width) as a file."""
    channels, _, _ = picture.shape
    pixels = picture[0] if channels == 1 else np.ascontiguousarray(picture.transpose(1, 2, 0))
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, format="PNG")
    return written.getvalue()
