"""Which public records get a label, what that may release, and how labels are learned from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dpal import check
from dpal.accounting.safe_search import smallest_safe
from dpal.errors import ParameterError
from dpal.privacy import Adjacency, PrivacyTarget

if TYPE_CHECKING:
    from dpal.accounting.events import NoisyCounts, NoisyMoments

_LEAST_NOISE = 0.05  # noise multiplier from which the search goes up


class PublicSelectionMethod(StrEnum):
    """How public records are chosen. Only near_private reads private ones, and pays."""

    RANDOM = "random"
    UNCERTAIN_ENTROPY = "uncertain_entropy"
    UNCERTAIN_MARGIN = "uncertain_margin"
    DIVERSE_PUBLIC = "diverse_public"
    NEAR_PRIVATE = "near_private"

    @property
    def reads_private(self) -> bool:
        """Whether it costs budget."""
        return self is PublicSelectionMethod.NEAR_PRIVATE

    @property
    def chooses_of_candidates(self) -> bool:
        """Whether it chooses, by their embeddings, of the most uncertain records."""
        return self in (PublicSelectionMethod.DIVERSE_PUBLIC, PublicSelectionMethod.NEAR_PRIVATE)


class Uncertainty(StrEnum):
    """What makes a record uncertain: entropy, or a small gap between the two largest logits."""

    ENTROPY = "entropy"
    MARGIN = "margin"


class Voters(StrEnum):
    """Which private records vote.

    THRESHOLD: those above a public uncertainty; each decides alone, so that one count moves
      when a record is blanked.
    TOP_K: the most uncertain, as many as there are candidates; blanking one lets another in,
      so that two counts move.
    """

    THRESHOLD = "threshold"
    TOP_K = "top_k"


@dataclass(frozen=True, kw_only=True)
class ChoiceSpec:
    """Which public records get a label.

    Attributes:
      method: how they are chosen.
      labels: how many.
      candidates: of how many uncertain ones diverse_public and near_private choose.
      components: directions that embeddings are projected onto.
      clusters: groups of diverse_public.
      each: records of every group.
      uncertainty: what candidates are ranked by.
      seed: of chance draws and clusters; public, like the records.
    """

    method: PublicSelectionMethod
    labels: int
    candidates: int
    components: int
    clusters: int
    each: int
    uncertainty: Uncertainty
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(
            1,
            **{
                "choice.labels": self.labels,
                "choice.components": self.components,
                "choice.clusters": self.clusters,
                "choice.each": self.each,
            },
        )
        grouped = self.method is PublicSelectionMethod.DIVERSE_PUBLIC
        if grouped and self.clusters * self.each != self.labels:
            raise ParameterError(
                f"choice.clusters {self.clusters:,} x choice.each {self.each:,} is "
                f"{self.clusters * self.each:,} and choice.labels is {self.labels:,}; leave one "
                "of the three out, or make them fit"
            )
        if self.method.chooses_of_candidates and self.candidates < self.labels:
            raise ParameterError(
                f"choice.candidates {self.candidates:,} is below choice.labels {self.labels:,}: "
                "records are chosen of the candidates; twice as many is usual"
            )

    @property
    def ranks_by_margin(self) -> bool:
        """Whether the margin between two classes says how uncertain a record is."""
        if self.method.chooses_of_candidates:
            return self.uncertainty is Uncertainty.MARGIN
        return self.method is PublicSelectionMethod.UNCERTAIN_MARGIN


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """What near_private releases about private records.

    Attributes:
      components: noise of the second moments.
      support: noise of the votes.
      voters: who votes.
      max_norm: public bound on the length of an embedding; None takes the median length of the
        public ones.
    """

    components: NoisyMoments
    support: NoisyCounts
    voters: Voters
    max_norm: float | None = None

    def __post_init__(self) -> None:
        if self.max_norm is not None:
            check.positive(**{"near_private.max_norm": self.max_norm})


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Plain training on bought labels of public records: no noise, no clipping, no charge.

    Attributes:
      optimizer: "sgd" or "adam".
      learning_rate: at the start; it falls to zero along a cosine.
      epochs: passes over the labels.
      batch_size: records of a step.
      weight_decay: pull of the weights towards zero.
      shift: most pixels by which a view of an image is moved.
      seed: of the order of the records and their views; public.
    """

    optimizer: str
    learning_rate: float
    epochs: int
    batch_size: int
    weight_decay: float
    shift: int
    seed: int = 0

    def __post_init__(self) -> None:
        check.one_of(("sgd", "adam"), **{"fine_tuning.optimizer": self.optimizer})
        check.positive(**{"fine_tuning.learning_rate": self.learning_rate})
        check.at_least(
            1,
            **{"fine_tuning.epochs": self.epochs, "fine_tuning.batch_size": self.batch_size},
        )
        check.at_least(
            0,
            **{"fine_tuning.weight_decay": self.weight_decay, "fine_tuning.shift": self.shift},
        )


def guidance_for(
    *,
    pca_epsilon: float,
    support_epsilon: float,
    voters: Voters,
    max_norm: float | None,
    target: PrivacyTarget,
) -> Guidance:
    """The noise of near_private for what its two releases may cost alone.

    Args:
      pca_epsilon: of the components alone, at the target's delta.
      support_epsilon: pure loss of the votes alone.
      voters: who votes; it decides how many counts one record can move.
      max_norm: as in `Guidance`.
      target: gives delta and adjacency.
    """
    from dpal.accounting.events import NoisyCounts, NoisyMoments  # settings are read without them

    check.positive(
        **{"near_private.pca_epsilon": pca_epsilon, "near_private.support_epsilon": support_epsilon}
    )
    noise = smallest_safe(
        lambda sigma: _gaussian_delta(sigma, pca_epsilon), target.delta, low=_LEAST_NOISE
    )
    # A record that is replaced may vote elsewhere: two counts, whoever votes.
    alone = voters is Voters.THRESHOLD and target.adjacency is Adjacency.ZERO_OUT
    moved = 1 if alone else 2
    return Guidance(
        components=NoisyMoments(noise_multiplier=noise),
        support=NoisyCounts(epsilon=support_epsilon / moved, l0_sensitivity=moved),
        voters=voters,
        max_norm=max_norm,
    )


def _gaussian_delta(sigma: float, epsilon: float) -> float:
    """Delta of the Gaussian mechanism (Balle & Wang 2018, Theorem 8)."""
    import scipy  # settings are read without it

    first = scipy.stats.norm.cdf(0.5 / sigma - epsilon * sigma)
    return float(first - math.exp(epsilon) * scipy.stats.norm.cdf(-0.5 / sigma - epsilon * sigma))
