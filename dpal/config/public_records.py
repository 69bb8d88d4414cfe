"""Which public records are labeled and how they are learned from: sections of a configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from dpal.config.form_choices import choice
from dpal.config.section import Count, Section
from dpal.errors import ParameterError
from dpal.planning.public_selection import (
    ChoiceSpec,
    FineTuning,
    PublicSelectionMethod,
    Uncertainty,
    Voters,
)

_EACH = 10  # records of a cluster, where neither clusters nor each are given


class ChoiceConfig(Section):
    """Which public records get a label."""

    method: PublicSelectionMethod = PublicSelectionMethod.DIVERSE_PUBLIC
    """random, uncertain_entropy, uncertain_margin, diverse_public (all free), or near_private
    (reads private records and pays)."""
    labels: Annotated[Count | None, choice("A number", "Clusters x each")] = None
    """How many are bought; null is clusters x each, or 1000."""
    candidates: Annotated[Count | None, choice("A number", "Twice the labels")] = None
    """Most uncertain public records to choose among; null is twice the labels."""
    uncertainty: Uncertainty = Uncertainty.ENTROPY
    """That ranks candidates."""
    components: Count = 10
    """Directions of the embeddings that count."""
    clusters: Annotated[Count | None, choice("A number", "Labels / each")] = None
    """Of diverse_public; null is labels / each."""
    each: Annotated[Count | None, choice("A number", "Labels / clusters")] = Field(
        None, title="Of each cluster"
    )
    """Of diverse_public; null is labels / clusters, or 10."""
    seed: NonNegativeInt = 0
    """Of clusters and chance; public."""

    def to_spec(self, *, public_records: int) -> ChoiceSpec:
        """The choice with all numbers filled in.

        Args:
          public_records: in the public pool.

        Raises:
          ParameterError: numbers contradict each other, or the pool is too small.
        """
        labels, clusters, each = self._numbers()
        if labels > public_records:
            raise ParameterError(
                f"choice.labels asks for {labels:,} of {public_records:,} public records; lower "
                "it, or give more public records"
            )
        wanted = min(2 * labels, public_records) if self.candidates is None else self.candidates
        if wanted > public_records:
            raise ParameterError(
                f"choice.candidates asks for {wanted:,} of {public_records:,} public records; "
                "lower it, or give more public records"
            )
        return ChoiceSpec(
            method=self.method,
            labels=labels,
            candidates=wanted,
            components=self.components,
            clusters=clusters,
            each=each,
            uncertainty=self.uncertainty,
            seed=self.seed,
        )

    @property
    def wanted(self) -> int:
        """How many labels are asked for, as far as the settings alone say."""
        given = (self.clusters or 1) * (self.each or 1)
        return self.labels or (given if self.clusters and self.each else 1000)

    def _numbers(self) -> tuple[int, int, int]:
        """Labels, clusters and records of each cluster, the last two 1 where they do not count."""
        if self.method is not PublicSelectionMethod.DIVERSE_PUBLIC:
            if self.clusters is not None and self.each is not None and self.labels is None:
                return self.clusters * self.each, self.clusters, self.each
            return self.labels or 1000, 1, 1
        if self.labels is None:
            if self.clusters is None and self.each is None:
                return 1000, 1000 // _EACH, _EACH
            each = self.each or _EACH
            clusters = self.clusters or max(1, 1000 // each)
            return clusters * each, clusters, each
        if self.clusters is not None and self.each is not None:
            return self.labels, self.clusters, self.each
        given = self.clusters or self.each or (_EACH if self.labels % _EACH == 0 else 1)
        if self.labels % given:
            name = "clusters" if self.clusters else "each"
            raise ParameterError(
                f"choice.labels {self.labels:,} is no multiple of choice.{name} {given:,}, and "
                "every cluster gives as many; choose numbers that fit"
            )
        other = self.labels // given
        return (self.labels, given, other) if self.clusters else (self.labels, other, given)


class NearPrivateConfig(Section):
    """What near_private may release about private records."""

    pca_epsilon: float = Field(0.3, gt=0, le=64, title="Epsilon of the components")
    """That the private PCA would cost alone; together with the start it is less."""
    support_epsilon: float = Field(0.5, gt=0, le=64, title="Epsilon of the votes")
    """That the noisy votes would cost alone."""
    voters: Voters = Voters.THRESHOLD
    """threshold: private records above a public uncertainty, charged for one count (two under
    replace_one). top_k: the most uncertain ones, charged for two."""
    max_norm: Annotated[PositiveFloat | None, choice("A number", "Median of the public ones")] = (
        Field(None, title="Longest embedding")
    )
    """Public bound; null is the median length of the public embeddings."""


class FineTuningConfig(Section):
    """Plain training on the bought labels of public records; free."""

    optimizer: Literal["sgd", "adam"] = "adam"
    """sgd (momentum 0.9) or adam."""
    learning_rate: PositiveFloat = 1e-3
    """At the start; falls along a cosine."""
    epochs: Count = 30
    """Passes over the bought labels."""
    batch_size: Count = 64
    """Records of a step."""
    weight_decay: NonNegativeFloat = 0.0
    """Of the weights."""
    shift: NonNegativeInt = Field(0, title="Moved")
    """Most pixels by which a view of an image is moved."""
    seed: NonNegativeInt = 0
    """Of order and views; public."""

    def to_spec(self) -> FineTuning:
        """As a frozen value."""
        return FineTuning(**dict(self))
