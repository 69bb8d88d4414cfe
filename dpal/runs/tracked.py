"""What a tracking server is told of a finished run, beside its promise and its certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpal.data.catalog import Source
from dpal.features.spec import ExtractorSpec
from dpal.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that is released, and what it takes.

    Attributes:
      weights: its .safetensors file.
      spec: its architecture.
      extractor: what makes its features.
      source: records of the kind that it takes.
      class_names: names in class order; empty when the data has none.
    """

    weights: Path
    spec: ModelSpec
    extractor: ExtractorSpec
    source: Source
    class_names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Public facts of a finished run.

    Attributes:
      parameters: settings worth comparing runs by.
      figures: numbers, among them those on the validation set.
      tags: beside those that every run has.
      records: JSON files by name.
      model: what is registered; None for none.
    """

    parameters: Mapping[str, object]
    figures: Mapping[str, float]
    tags: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    model: ServedModel | None = None
