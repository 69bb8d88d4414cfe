"""Ballots of teachers that lie in files, turned into released labels; the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from dpal.accounting.votes.mechanisms import MOST_BLOCKS, Mechanism, ReleasedVotes
from dpal.config.guarded_settings import Guarded
from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.config.section import AgreementShare, Count, Fraction, MeanAgreement, Name, Section
from dpal.config.settings_errors import settings_refusal
from dpal.privacy import Adjacency, Unit

VOTE = "vote"
_Reason = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]


class BallotsConfig(Section):
    """What teachers said."""

    model_config = ConfigDict(title="Ballots")

    files: Annotated[list[Path], Guarded()] = Field([], title="Files")
    """Parquet: id, teacher and ballot (0/1 lists), scores (lists) or class; or a file for each
    teacher."""
    cut: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Scores above it are a yes; public."""
    partitions: Annotated[Path | None, Guarded()] = None
    """Parquet with id, teacher (and group): checked to be disjoint."""


class BallotPrivacyConfig(Section):
    """What is promised for all that is ever asked of these teachers."""

    model_config = ConfigDict(title="Promise")

    epsilon: PositiveFloat = 8.0
    """For all queries of the account."""
    delta: Fraction | None = None
    """Failure probability; null is 1 / (10 x records)."""
    records: Count | None = None
    """Private records of all teachers together."""
    adjacency: Adjacency = Adjacency.ZERO_OUT
    """One whole ballot is replaced under both."""
    unit: Unit = Unit.RECORD
    """What belongs to one teacher alone: each record, or each group."""
    budgets: Annotated[Path | None, Guarded(usual=(None,))] = None
    """Parquet with teacher and epsilon: teachers that promise their records less. They vote until
    that is spent, on the first queries of each block. Public."""


class BallotVotingConfig(Section):
    """How votes are counted."""

    model_config = ConfigDict(title="Voting")

    mechanism: Mechanism | None = None
    """Null is binary; gnmax of classes."""
    sigma: PositiveFloat | None = None
    """Noise on each count, in votes; null is the least that fits."""
    limit: PositiveFloat | None = None
    """Of top_m, tau_l2, tau_l1 and powerset: positives, or the norm."""
    noises: Annotated[int, Field(ge=1, le=2)] = 2
    """Noisy counts of a label."""
    release: ReleasedVotes = ReleasedVotes.ANSWERS
    """answers: what most teachers say. counts: noisy numbers of votes, from which answers follow;
    they are charged as such."""
    threshold: NonNegativeFloat | None = None
    """Answer only above so many votes."""
    threshold_sigma: PositiveFloat | None = None
    """Noise of that check, in votes."""
    answer_from: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the teachers whose agreement is answered with chance 0.9; threshold, its noise and
    a small sigma that fits are chosen for it. Public."""
    answered_share: Fraction | None = None
    """Public guess of the share of queries that pass the threshold: an unanswered query is charged
    less than an answered one, and asking stops when all that is promised is spent. Null charges
    both alike."""
    agreement: MeanAgreement | list[AgreementShare] | None = None
    """Answers leave with little noise only if what they cost, told with noise, is small, and with
    more noise else; this public guess of the share of teachers that agree sets how small: the mean
    over queries, or a list of shares, each for as many queries."""
    gate: str | int | None = None
    """Label that is asked first; where it is released as absent, its dependents are 0 at no cost
    and more queries of the files are asked."""
    dependents: list[str | int] = Field([])
    """Labels that are 0 where the gate is; from knowledge or public records."""
    queries: Count | None = None
    """With a gate: queries that are paid for in full; null is all in the files, or with a sigma as
    many as epsilon is sure to pay for."""
    blocks: Annotated[int, Field(ge=1, le=MOST_BLOCKS)] | None = None
    """How often so many queries may be asked in all; null is once, or what the account holds."""


class VoteConfig(RunConfig):
    """Turn ballots of teachers into released labels, under an account in the ledger.

    Give it a name, the files of ballots, and how many private records are behind them.
    """

    model_config = ConfigDict(title="Votes on ballots in files")

    kind: Literal["vote"] = "vote"
    """Of configuration."""
    name: Name = Field(examples=["hospital-votes"])
    """Names the account in ledger and folder: lower-case letters, digits, - and _."""
    ballots: BallotsConfig = Field(default_factory=BallotsConfig)
    privacy: BallotPrivacyConfig = Field(default_factory=BallotPrivacyConfig)
    voting: BallotVotingConfig = Field(default_factory=BallotVotingConfig)
    after: Name | None = None
    """Count what this account holds in the promise."""
    # Whoever says so gives teachers a second promise.
    other_teachers: Annotated[_Reason | None, Guarded(place=False, free=(None,))] = None
    """Why these are not the teachers of another account that has such names or answers."""
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig, title="Where it runs")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        voting = self.voting
        if not self.ballots.files:
            raise ValueError("ballots.files names no file; name the Parquet files of the ballots")
        if (voting.threshold is None) != (voting.threshold_sigma is None):
            raise ValueError("voting.threshold and voting.threshold_sigma belong together")
        if voting.answer_from is not None and any(
            given is not None for given in (voting.sigma, voting.threshold, voting.agreement)
        ):
            raise ValueError(
                "voting.answer_from chooses threshold, threshold_sigma and sigma, for any votes; "
                "leave these and voting.agreement out"
            )
        if (voting.gate is None) != (not voting.dependents):
            raise ValueError("voting.gate and voting.dependents belong together")
        if self.privacy.delta is None and self.privacy.records is None:
            raise ValueError(
                "give privacy.records (private records of all teachers together) or privacy.delta; "
                "without either nobody knows what epsilon means"
            )
        if self.other_teachers == "":
            raise ValueError("other_teachers needs a reason, or leave it out")
        return self


def parse_vote(values: Mapping[str, Any]) -> VoteConfig:
    """Checks settings of votes on ballots.

    Raises:
      ConfigError: as `dpal.config.campaign.parse_config`.
    """
    try:
        return VoteConfig.model_validate(dict(values))
    except ValidationError as error:
        raise settings_refusal(error, VoteConfig) from error
