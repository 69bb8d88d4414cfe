"""Votes between sites that do not trust each other: settings of the vote, and of each party."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc.frames import largest_frame
from dpal.capc.ring import MOST_FEATURES
from dpal.capc.terms import (
    MOST_BATCHES,
    MOST_LABELS,
    MOST_QUERIES,
    MOST_SITES,
    Terms,
    VoteMode,
)
from dpal.config.runtime import RuntimeConfig
from dpal.config.section import Fraction, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.errors import ParameterError

_MOST_PORT = 65_535
_HOST = re.compile(
    r"\[[0-9A-Fa-f:.%]+\]|[0-9A-Fa-f:]+:[0-9A-Fa-f:]*|([\w-]{1,63}\.)*[\w-]{1,63}\.?", re.A
)


def _address(value: str) -> str:
    """Host and port of a machine, as far as one can tell without asking for it."""
    return _checked(value, value.rpartition(":")[0])


def _own_address(value: str) -> str:
    """The same, or nothing; a port alone is one of all addresses of this machine."""
    return value and _checked(value, value.rpartition(":")[0] or "localhost")


def _checked(value: str, host: str) -> str:
    port = value.rpartition(":")[2]
    if not _HOST.fullmatch(host) or not port.isdecimal() or int(port) > _MOST_PORT:
        raise ValueError(
            f"{value!r} is no host and port, such as keeper.example:7461 or [::1]:7461, with a "
            f"port up to {_MOST_PORT}"
        )
    return value


class SitesVoteConfig(Section):
    """What all parties agree on: everybody has the same file."""

    model_config = ConfigDict(title="A vote between sites")

    name: Name
    """Names the vote: in the guardian's ledger and folder."""
    guardian: Name = "guardian-1"
    """Name of the guardian, as its certificate says it."""
    address: Annotated[str, AfterValidator(_address)] = "127.0.0.1:7461"
    """Host and port at which the guardian answers."""
    sites: Annotated[list[Name], Field(min_length=2, max_length=MOST_SITES)]
    """Names of the sites, as their certificates say them."""
    labels: Annotated[int, Field(ge=1, le=MOST_LABELS)]
    """Yes-or-no labels of a query, or classes of which sites name one."""
    features: Annotated[int, Field(ge=0, le=MOST_FEATURES)] = 0
    """Whole numbers of 8 bits of a query; left out in mode shares."""
    queries: Annotated[int, Field(ge=1, le=MOST_QUERIES)] = 20
    """Of a batch, at most; each batch is charged as if it had so many."""
    batches: Annotated[int, Field(ge=1, le=MOST_BATCHES)] = 1
    """That may ever be asked, by all who ask together."""
    mechanism: Mechanism = Mechanism.BINARY
    """What sites vote on: binary, top_m, tau_l2, tau_l1, gnmax or powerset."""
    limit: Annotated[int | float | None, Field(ge=1, allow_inf_nan=False)] = None
    """Positives of a ballot, at most: of top_m, and where it is wanted of powerset. Of tau_l2 and
    tau_l1 the norm that ballots are scaled down to, such as 1.8."""
    mode: VoteMode = VoteMode.HELPER
    """helper: the guardian deals keys. strict: epsilon holds even if it colludes with who asks.
    shares: who asks and sites hold shares of what models say, from dpal capc cnn."""
    sigma: Annotated[float, Field(ge=0.1, le=200)]
    """Noise on each count, in votes; a yes-or-no label has two."""
    colluding: Annotated[int, Field(ge=0)] = 0
    """Sites that may collude with who asks, at most; a site that asks itself is one."""
    absent: Annotated[int, Field(ge=0)] = 0
    """Sites that may be missing, at most."""
    epsilon: PositiveFloat = 20.0
    """Promised to every record of every site, for all batches."""
    delta: Fraction
    """Failure probability; below one over the records of a site."""

    @field_validator("limit")
    @classmethod
    def _whole(cls, limit: float | None) -> float | None:
        return int(limit) if limit is not None and limit == int(limit) else limit

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            largest_frame(self.terms())
        except ParameterError as error:
            raise ValueError(str(error)) from error
        return self

    def terms(self) -> Terms:
        """As the protocol knows them."""
        return Terms(
            sites=tuple(self.sites),
            **self.model_dump(exclude={"guardian", "address", "sites"}),
        )

    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


class PartyConfig(Section):
    """What every party has of its own."""

    vote: Path
    """File of the vote's settings."""
    keys: Path
    """Folder with key.pem, certificate.pem, authority.pem and revoked.pem."""
    patience: Annotated[float, Field(gt=0, le=600)] = 8.0
    """Seconds that a party may be silent while it is waited for."""


class GuardianConfig(PartyConfig):
    """The guardian: where it listens, and where its ledger is."""

    model_config = ConfigDict(title="Guardian")

    listen: Annotated[str, AfterValidator(_own_address)] = ""
    """Address of this machine at which it listens; empty is that of the vote."""
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)


class SiteConfig(PartyConfig):
    """A site: who it is, and its model, or shares of what that says."""

    model_config = ConfigDict(title="Site")

    site: Name
    """Its name."""
    model: Path | None = None
    """safetensors with `weights` (labels, features) of 8 bits and `bias` (labels); private."""
    account: Path = Path("account.jsonl")
    """What it has voted in, written by itself; see dpal capc spent."""
    shares: Path | None = None
    """In mode shares, in place of a model: folder of files that dpal capc cnn wrote; private."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.model is None) is (self.shares is None):
            raise ValueError("a site has a model or, in mode shares, a folder of shares; name one")
        return self


class QuerierConfig(PartyConfig):
    """Who asks: the queries, and where their answers go."""

    model_config = ConfigDict(title="Who asks")

    querier: Name
    """Its name."""
    queries: Path
    """Parquet with `id` and `features` (lists of whole numbers of 8 bits); private. In mode shares
    `id` alone, in the order of the images."""
    shares: dict[Name, Path] = Field(default_factory=dict)
    """In mode shares, by site: the file that dpal capc cnn wrote here; private."""
    answers: Path
    """Parquet that is written: `id`, `labels`, and in `query` what tells other queries apart."""


class CnnConfig(Section):
    """One of the three parties that evaluate a site's small net on images of who asks."""

    model_config = ConfigDict(title="A small net between three parties")

    party: Literal["querier", "site", "guardian"]
    """Which of the three this is."""
    addresses: Annotated[list[str], Field(min_length=3, max_length=3)]
    """Host and port of who asks, of the site and of the guardian; the same for all."""
    queries: Annotated[int, Field(ge=1, le=MOST_QUERIES)]
    """Images; the same for all."""
    labels: Annotated[int, Field(ge=1, le=MOST_LABELS)]
    """Outputs of the net; the same for all."""
    keys: Path
    """Folder with key.pem, certificate.pem and authority.pem."""
    input: Path | None = None
    """.npz of who asks, with `images` (queries, 28, 28), or of the site, with its net; private."""
    output: Path | None = None
    """Of who asks and the site: .npz that is written, with `shares`; private. No
    file of that name may exist."""
    patience: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Seconds that it may take, from waiting for the others to the end."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        files = (self.input is not None) + (self.output is not None)
        if files != (0 if self.party == "guardian" else 2):
            raise ValueError("who asks and the site have an input and an output, the guardian none")
        if self.output is not None and self.output.suffix != ".npz":
            raise ValueError("output must end in .npz, by which sites know such files")
        return self


C = TypeVar("C", bound=Section)


def parse_capc(kind: type[C], values: Mapping[str, Any], place: Path) -> C:
    """Checks settings of a vote or of a party; paths are relative to the file's folder.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    try:
        config = kind.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, kind) from error
    moved: dict[str, Any] = {
        name: place / value
        for name, value in config
        if isinstance(value, Path) and not value.is_absolute()
    }
    if isinstance(shares := getattr(config, "shares", None), dict):
        moved["shares"] = {site: place / file for site, file in shares.items()}
    if isinstance(runtime := getattr(config, "runtime", None), RuntimeConfig):
        moved["runtime"] = runtime.model_copy(update={"artifacts": place / runtime.artifacts})
    return config.model_copy(update=moved)
