"""Labelers that settings can name, one file each, and what a run asks of whichever it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dpal.labeling.registered_labelers import LABELERS, labeler_named
from dpal.labeling.registered_labelers import register_labeler as register_labeler
from dpal.runs.labelers.labeler_base import NamedLabeler as NamedLabeler

if TYPE_CHECKING:
    from dpal.config.labeler import LabelerConfig


def labeler_of(settings: LabelerConfig | str) -> NamedLabeler:
    """The labeler that settings name, or that has a name.

    Raises:
      ConfigError: there is none of that name.
    """
    name = settings if isinstance(settings, str) else settings.kind
    return cast("NamedLabeler", labeler_named(name))


def people_label(record: Mapping[str, Any]) -> bool:
    """Whether people gave the labels of a run, by its record.

    Not of a labeler that another program registered and this one does not know: whoever only
    reads a run needs none.
    """
    name = record["config"].get("labeler", {}).get("kind")
    return name in LABELERS and labeler_of(name).asks_people
