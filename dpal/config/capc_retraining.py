"""Settings of who asks sites and learns from their answers: the flow `capc`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from dpal.config.form_choices import choice
from dpal.config.guarded_settings import Guarded
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.config.section import Name


class RetrainingConfig(RunConfig):
    """Who asks: private queries, own labeled records, and what comes of both."""

    model_config = ConfigDict(title="Ask sites, retrain, report")

    name: Name
    """Names the report, its folder below runtime.artifacts, and its run in MLflow."""
    vote: Annotated[Path, Guarded(key="capc.vote")]
    """File of the vote's settings, the same for all parties."""
    # Not `keys`, as of other parties: Prefect makes a dict of settings, which asks for their keys.
    key_folder: Annotated[Path, Guarded(key="capc.key_folder")]
    """Folder with key.pem, certificate.pem, authority.pem and revoked.pem of who asks."""
    querier: Name
    """Name of who asks, as its certificate says it."""
    queries: Annotated[Path, Guarded(key="capc.queries")]
    """Parquet with `id` and `features` (lists of whole numbers of 8 bits); private."""
    answers: Annotated[Path, Guarded(key="capc.answers")]
    """Parquet that is written: `id`, `labels`, and in `query` what tells other queries apart."""
    records: Annotated[Path, Guarded(key="capc.records")]
    """Own records: Parquet with `id`, `features`, and `label` or `labels`; private."""
    test: Annotated[
        Path | None, Guarded(key="capc.test", free=(None,)), choice("A file", "None")
    ] = Field(None, title="Test records")
    """Labeled records that judge the model before and after, and that nothing else looks at."""
    why_public: Annotated[str, Guarded(place=False, key="capc.why_public", free=("",))] = Field(
        "", title="Why everybody may see figures on the test records"
    )
    """In words: a published data set, people who agreed. Empty keeps these figures in the owner's
    own report, and out of Prefect and MLflow."""
    why_own_public: Annotated[str, Guarded(place=False, key="capc.why_own_public", free=("",))] = (
        Field("", title="Why everybody may see what is learned from own records")
    )
    """In words, as above. Figures are those of models that learn from own records without noise, so
    that they say something of these, too: without both reasons they stay with the owner."""
    patience: Annotated[float, Field(gt=0, le=600)] = 8.0
    """Seconds that a party may be silent while it is waited for."""
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)

    @property
    def figures_are_public(self) -> bool:
        """Whether everybody may see how good models of own records are on the test records."""
        return bool(self.why_public and self.why_own_public)


def is_retraining(values: Mapping[str, Any]) -> bool:
    """Whether settings are those of who asks sites and retrains."""
    return "vote" in values and "records" in values


def parse_retraining(
    values: RetrainingConfig | Mapping[str, Any], place: Path = Path()
) -> RetrainingConfig:
    """Checks what a person or a form said; paths are relative to `place`.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    from dpal.config.capc import parse_capc  # numpy, which other commands do not wait for

    if isinstance(values, RetrainingConfig):
        return values
    return parse_capc(RetrainingConfig, values, place)
