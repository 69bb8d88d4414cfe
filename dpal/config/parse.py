"""Settings of whatever kind: a campaign, or what its `kind` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import KIND, PublicConfig, parse_public
from dpal.config.voting import PATE, PateConfig, parse_pate
from dpal.errors import ConfigError

AnyConfig = CampaignConfig | PublicConfig | PateConfig

_PARSERS: dict[str, Callable[[Mapping[str, Any]], AnyConfig]] = {
    KIND: parse_public,
    PATE: parse_pate,
}


def parse_any(values: Mapping[str, Any]) -> AnyConfig:
    """Checks what a person wrote.

    Raises:
      ConfigError: as `parse_config`; or the kind is unknown.
    """
    kind = values.get("kind")
    if kind is None:
        return parse_config(values)
    if kind not in _PARSERS:
        raise ConfigError(
            f"kind cannot be {kind!r}; leave it out for a campaign, or use {' or '.join(_PARSERS)}"
        )
    return _PARSERS[kind](values)
