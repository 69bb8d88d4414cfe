"""Reading a campaign's settings from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from dpal.config.campaign import CampaignConfig, RuntimeConfig, override, parse_config
from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError
from dpal.runs.kinds import campaign_of, parse_any
from flows.cli.terminal import parse_setting

ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="Campaign configuration (YAML).")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
]


RuntimeSettings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Where things are, such as runtime.artifacts=work."
    ),
]


def runtime_from(settings: list[str]) -> RuntimeConfig:
    """The runtime section for commands that are about no campaign.

    Raises:
      ConfigError: a setting is unknown or none of runtime.
    """
    values: dict[str, Any] = {"name": "none"}
    for text in settings:
        key, value = parse_setting(text)
        if not key.startswith("runtime."):
            raise ConfigError(f"--set {key} has no effect here; only runtime settings have")
        override(values, key, value)
    return parse_config(values).runtime


def read_values(file: Path, remedy: str = "write one with: dpal init NAME") -> dict[str, Any]:
    """Reads what a configuration says, before anything is made of it.

    Args:
      file: of the configuration.
      remedy: for whoever has none.

    Raises:
      ConfigError: the file is missing, unreadable or holds no settings.
    """
    if not file.is_file():
        raise ConfigError(f"{file} does not exist; {remedy}")
    try:
        values: Any = read_yaml(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise ConfigError(f"{file} is not readable YAML{line}; correct it and try again") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} holds no settings; {remedy}")
    return values


def load_values(file: Path, settings: list[str]) -> dict[str, Any]:
    """Reads a configuration and applies overrides, before anything is made of it.

    Raises:
      ConfigError: the file is missing or unreadable.
    """
    values = read_values(file)
    for text in settings:
        override(values, *parse_setting(text))
    return values


def load_config(file: Path, settings: list[str]) -> CampaignConfig:
    """Reads a campaign's configuration and applies overrides.

    Raises:
      ConfigError: the file is missing, unreadable or says something impossible.
    """
    return campaign_of(parse_any(load_values(file, settings)))
