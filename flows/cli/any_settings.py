"""Reading settings of whatever can run, or of a watch with the campaign that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpal.config.campaign import override
from dpal.config.capc_retraining import is_retraining, parse_retraining
from dpal.config.runtime import RunConfig
from dpal.config.watch import WatchConfig, is_watch, parse_watch, template_values
from dpal.runs.kinds import parse_any
from flows.cli.read_settings import load_values, read_values
from flows.cli.terminal import parse_setting


def load_any(file: Path, settings: Sequence[str] = ()) -> RunConfig | WatchConfig:
    """Reads settings of whatever kind and applies overrides.

    Raises:
      ConfigError: a file is missing, unreadable or says something impossible.
    """
    values = read_values(file)
    if is_watch(values):
        return load_watch(file, settings)
    if is_retraining(values):
        return parse_retraining(load_values(file, list(settings)), file.parent)
    return parse_any(load_values(file, list(settings)))


def load_watch(file: Path, settings: Sequence[str] = ()) -> WatchConfig:
    """Reads a watch's settings and applies overrides.

    Its `campaign` is a section, or the path of a campaign's own file.

    Raises:
      ConfigError: a file is missing, unreadable or says something impossible.
    """
    values = read_values(file, "docs/new-data.md shows what stands in a watch's file")
    named = values.get("campaign")
    if isinstance(named, str):
        whole = read_values(Path(named))
        values["campaign"] = template_values(whole, dataset=values.get("dataset"))
    for text in settings:
        override(values, *parse_setting(text))
    return parse_watch(values)
