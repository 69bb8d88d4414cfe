"""A linear model from one noisy release for each phase: sums over its records, then algebra.

What is read of private records are the sums of `dpal.mechanisms.head_statistics`, once for each
cohort and with noise. All else here is post-processing of them, or reads public records: in which
directions features are kept and how long they may be, how strongly a solution is held back, and the
scale of what it says.

Source: ridge regression on noisy moments, held back by as much as noise may do, Wang (2018),
"Revisiting differentially private linear regression"; on fixed features of public networks, Mehta
et al. (2023), "Differentially private image classification from features". Public directions, and
how classes are told apart by noisy means, are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.accounting.events import NoisyStatistics
from dpal.data.labeled_records import Batch, LabeledSet
from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import UNKNOWN, Task
from dpal.mechanisms.head_statistics import CONSTANT, HeadStatistics, HeadSums
from dpal.mechanisms.private_pca import clip_rows
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.linear_head_spec import HeadKind, LinearHead
from dpal.randomness import BitSource
from dpal.training.calibration import best_temperature
from dpal.training.losses import probabilities_of
from dpal.training.poisson_batches import GroupBatches, PoissonBatches, group_sizes
from dpal.training.predictions import at_temperature

Floats = NDArray[np.float64]
Heads = Callable[[float], tuple[Floats, Floats]]  # of a share, weights and bias
PublicRecords = tuple[Tensor, Tensor]  # inputs and labels, as in `LabeledSet`

MOST_MOMENTS = 2048  # features of which second moments are released, where nothing narrows them
_JUDGES = 4000  # public records that a solution is chosen by, at most
_RIDGES = np.geomspace(1e-2, 1e2, 17)  # tried on public records; 1 is what is taken without any
_SURE = 8.0  # logits between the codes of two classes, where no public record says better
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureFrame:
    """Public numbers by which features become those of a head.

    Attributes:
      centre: (features,) taken off.
      directions: (components, features) that are kept; None keeps features as they are.
      length: that they are divided by, so that most are 1 long or less.
    """

    centre: Floats
    directions: Floats | None
    length: float

    def apply(self, features: Floats) -> Floats:
        """(n, features) as (n, components), of any length."""
        rows = features - self.centre
        if self.directions is not None:
            rows = rows @ self.directions.T
        return np.asarray(rows / self.length)

    @property
    def width(self) -> int:
        """Numbers of a record that a head reads."""
        return len(self.centre if self.directions is None else self.directions)

    def unapply(self, weights: Floats, bias: Floats) -> tuple[Floats, Floats]:
        """The same linear model on features as they come.

        Args:
          weights: (components, classes) on what `apply` gives.
          bias: (classes,).

        Returns:
          (classes, features) and (classes,).
        """
        own = weights.T / self.length
        whole = own if self.directions is None else own @ self.directions
        return whole, bias - whole @ self.centre


def frame_of(head: LinearHead, features: int, public: Floats | None) -> FeatureFrame:
    """Directions and length of features, by public records or by nothing.

    Args:
      head: what is wished.
      features: how many a record has.
      public: (n, features) of PUBLIC records; None where there are none.

    Directions in which public records differ most are kept, each divided by the root of its
    standard deviation: halfway between features as they are, of which few directions have all the
    length, and whitened ones, of which noise has most.

    Raises:
      ParameterError: second moments of so many features would be noise, and nothing narrows them.
    """
    if public is None or len(public) < 2:
        if head.kind is HeadKind.LEAST_SQUARES and features > MOST_MOMENTS:
            raise ParameterError.before_release(
                f"least_squares releases second moments, and of {features:,} features they would "
                f"be noise ({MOST_MOMENTS:,} at most). Public validation records can narrow them "
                "(training.components); else use training.method prototypes"
            )
        length = head.max_feature_norm or math.sqrt(features)
        return FeatureFrame(centre=np.zeros(features), directions=None, length=length)
    centre = public.mean(axis=0)
    apart = public - centre
    values, vectors = _principal(apart, head.components)
    directions = vectors / np.sqrt(values)[:, None]
    lengths = np.linalg.norm(apart @ directions.T, axis=1)
    return FeatureFrame(
        centre=centre,
        directions=directions,
        length=head.max_feature_norm or float(np.median(lengths)) or 1.0,
    )


def _principal(rows: Floats, count: int) -> tuple[Floats, Floats]:
    """Standard deviations (k,) and directions (k, features) of centred rows; the largest first."""
    wide = len(rows) < rows.shape[1]
    products = rows @ rows.T if wide else rows.T @ rows
    kept = min(count, len(products))
    values, vectors = scipy.linalg.eigh(
        products, subset_by_index=(len(products) - kept, len(products) - 1)
    )
    squares, vectors = values[::-1], vectors[:, ::-1]
    sound = squares > 1e-9 * max(float(squares[0]), _TINY)
    sound[0] = True
    lengths = np.sqrt(np.maximum(squares[sound], _TINY))
    directions = vectors[:, sound].T
    if wide:
        directions = (directions @ rows) / lengths[:, None]
    return lengths / math.sqrt(len(rows)), directions


class LinearHeadFit:
    """Fits the head of a campaign phase by phase."""

    def __init__(
        self,
        spec: CampaignSpec,
        public: PublicRecords | None,
        carried: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Begins, or goes on from what an earlier phase left.

        Args:
          spec: of the campaign; its model is linear.
          public: the validation set, where it is PUBLIC.
          carried: by `state` after an earlier phase; None begins.

        Raises:
          ParameterError: no head is wished, or there are too many features for it.
        """
        if spec.head is None:
            raise ParameterError("no head is fitted in this campaign")
        self._head, self._model, self._target = spec.head, spec.model, spec.target
        self._planned = spec.schedule.cohort_sizes
        self._group_records = 1 if spec.groups is None else spec.groups.records
        self._public = None
        if public is not None and len(public[0]):
            inputs, labels = (part[:_JUDGES] for part in public)
            self._public = (features_of(self._model, inputs), labels.numpy())
        width = math.prod(self._model.input_shape)
        if carried is None:
            known = None if self._public is None else self._public[0]
            self._frame = frame_of(self._head, width, known)
            self._sums = self._statistics.nothing()
        else:
            self._frame, self._sums = _restored(carried)
        self._phases = 0

    @property
    def _statistics(self) -> HeadStatistics:
        return HeadStatistics(
            features=self._frame.width,
            classes=self._model.classes,
            task=self._model.task,
            moments=self._head.kind is HeadKind.LEAST_SQUARES,
        )

    def add(
        self, labeled: LabeledSet, phase: Phase, *, physical_batch: int, rng: BitSource
    ) -> None:
        """Releases the sums over the records that a phase labeled, and adds them to those before.

        Args:
          labeled: all labeled records; those of earlier phases are not looked at.
          phase: whose records are summed, and how much noise they get.
          physical_batch: records that are read at once.
          rng: source of the noise; a fresh one for every attempt.
        """
        statistics = self._statistics
        event = NoisyStatistics(noise_multiplier=phase.training.noise_multiplier)
        private = statistics.of(self._batches(labeled, phase, physical_batch, rng))
        released = statistics.release(private, event, adjacency=self._target.adjacency, rng=rng)
        self._sums = self._sums.plus(released)
        self._phases = phase.index + 1

    def _batches(
        self, labeled: LabeledSet, phase: Phase, physical_batch: int, rng: BitSource
    ) -> Iterator[tuple[Floats, NDArray[np.int64], Floats]]:
        """Features, labels and shares of the phase's own records; rows of a group side by side."""
        for rows, records in labeled.batches(self._drawn(labeled, phase, rng), part=physical_batch):
            shares = np.ones(len(rows))
            if labeled.owners is not None:
                sizes = group_sizes(labeled.owners[rows])
                shares = np.repeat(1.0 / sizes, sizes)
            for start in range(0, len(rows), physical_batch):
                part = slice(start, start + physical_batch)
                features = self._frame.apply(features_of(self._model, records[part]))
                labels = labeled.labels[torch.from_numpy(rows[part])].numpy()
                yield features, labels, shares[part]

    def _drawn(
        self, labeled: LabeledSet, phase: Phase, rng: BitSource
    ) -> Iterable[NDArray[np.intp]]:
        """Rows of all records of the phase; of a large group so many as it may bring."""
        if labeled.owners is None:
            alone = PoissonBatches.of_part(phase.training, phase.index, labeled.cohorts)
            return alone.draw(rng=rng)
        together = GroupBatches.of_part(
            phase.training, phase.index, labeled.cohorts, labeled.owners,
            most=self._group_records,
        )  # fmt: skip
        return together.draw(rng=rng)

    def weights(self) -> dict[str, Tensor]:
        """The linear model that follows, by the names of `dpal.models.small.logistic`."""
        judged = None
        if self._public is not None:
            judged = (self._frame.apply(self._public[0]), self._public[1])
        weights, bias = solve(
            self._sums,
            task=self._model.task,
            labels=sum(self._planned[: self._phases]),
            public=judged,
        )
        whole, shift = self._frame.unapply(weights, bias)
        return linear_weights(whole, shift)

    def state(self) -> dict[str, Tensor]:
        """What the next phase goes on from: released sums and public numbers."""
        told = {
            "centre": self._frame.centre,
            "length": np.array(self._frame.length),
            "products": self._sums.products,
            "variance": np.array(self._sums.variance),
        }
        if self._frame.directions is not None:
            told["directions"] = self._frame.directions
        if self._sums.moments is not None:
            told["moments"] = self._sums.moments
        return {name: torch.from_numpy(np.array(value)) for name, value in told.items()}


def _restored(carried: Mapping[str, Tensor]) -> tuple[FeatureFrame, HeadSums]:
    told = {name: value.numpy() for name, value in carried.items()}
    frame = FeatureFrame(
        centre=told["centre"], directions=told.get("directions"), length=float(told["length"])
    )
    sums = HeadSums(
        moments=told.get("moments"),
        products=told["products"],
        variance=float(told["variance"]),
    )
    return frame, sums


def linear_weights(weights: Floats, bias: Floats) -> dict[str, Tensor]:
    """(labels, d) weights and (labels,) biases by the names of `dpal.models.small.logistic`."""
    return {
        "1.weight": torch.from_numpy(weights).float().contiguous(),
        "1.bias": torch.from_numpy(bias).float().contiguous(),
    }


def features_of(spec: ModelSpec, records: Batch | Tensor) -> Floats:
    """(n, features) as the model's first layer sees them, after its public normalisation."""
    inputs = to_input(records if isinstance(records, Tensor) else records[:])
    if spec.normalisation is not None:
        inputs = spec.normalisation.apply(inputs)
    return np.asarray(inputs.flatten(1).double().numpy())


def solve(
    sums: HeadSums,
    *,
    task: Task,
    labels: int,
    public: tuple[Floats, NDArray[np.int64]] | None = None,
) -> tuple[Floats, Floats]:
    """A linear head from released sums; costs nothing.

    Args:
      sums: released; without noise for tests.
      task: what a label is.
      labels: how many records are summed, as planned.
      public: (n, components) features of PUBLIC records, in the head's frame, and their labels; by
        them it is chosen how strongly the solution is held back, and on what scale it speaks.

    Returns:
      (components, classes) and (classes,): logits are linear in a record's features.
    """
    if sums.moments is not None:
        held_back = _ridge_heads(sums, sums.moments, task)
    else:
        held_back = _nearest_means(sums, labels, None if public is None else public[0])
    if public is None or not (public[1] != UNKNOWN).any():
        return held_back(1.0)
    features, known = public
    best, least = held_back(1.0), math.inf
    for share in _RIDGES:
        weights, bias = held_back(float(share))
        temperature, loss = _judged(features @ weights + bias, known, task)
        if loss < least:
            best, least = (weights / temperature, bias / temperature), loss
    return best


def _ridge_heads(sums: HeadSums, moments: Floats, task: Task) -> Heads:
    """Ridge regressions from noisy moments, held back by a share of what noise may do to them."""
    values, vectors = np.linalg.eigh(moments)
    # What noise made negative was no moment of any record.
    values = np.maximum(values, 0.0)
    turned = vectors.T @ sums.products
    # The largest eigenvalue of such noise, s / sqrt(2) off the diagonal, at this width.
    edge = math.sqrt(2 * len(values) * sums.variance)
    # Codes of labels are shorter the more labels there are.
    several = math.sqrt(sums.products.shape[1]) / 2 if task is Task.MULTI_LABEL else 1.0

    def held_back(share: float) -> tuple[Floats, Floats]:
        ridge = share * edge + _TINY * float(values[-1] + 1)
        solution = vectors @ (turned / (values + ridge)[:, None])
        return _from_constant(_SURE * several * solution)

    return held_back


def _nearest_means(sums: HeadSums, labels: int, public: Floats | None) -> Heads:
    """Classifies by the nearest class mean, in the metric of PUBLIC records or as features are.

    A noisy mean is longer than the mean: by the noise's own expected length, which is known and
    taken off. Without that the class with fewest records would be far from everything.
    """
    totals = sums.products
    deviation = math.sqrt(sums.variance)
    # The constant of every record adds up to a count, known to this deviation.
    counts = np.maximum(totals[-1] / CONSTANT, max(deviation / CONSTANT, 1.0))
    kept = math.sqrt(1 - CONSTANT**2)
    means = totals[:-1] / (kept * counts)
    everybody = totals[:-1].sum(axis=1) / (kept * max(labels, 1))
    apart = means - everybody[:, None]
    values, vectors = np.ones(len(means)), np.eye(len(means)) if public is not None else None
    if public is not None:
        rows = clip_rows(public, 1.0)
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        values = np.maximum(values, 0.0)
    typical = float(values.mean()) or 1.0

    def held_back(share: float) -> tuple[Floats, Floats]:
        divided = 1 / (values + share * typical) if vectors is not None else values
        turned = apart if vectors is None else vectors.T @ apart
        weights = turned * divided[:, None]
        weights = weights if vectors is None else vectors @ weights
        lengths = (apart * weights).sum(axis=0)
        noise = sums.variance / (kept * counts) ** 2 * float(divided.sum())
        bias = -everybody @ weights - np.maximum(lengths - noise, 0.0) / 2
        # Between a class mean and the others' there are so many logits as between codes.
        reach = float(np.maximum(lengths - noise, 0.0).mean())
        scale = _SURE / reach if reach > 0 else 1.0
        return scale * weights, scale * bias

    return held_back


def _from_constant(solution: Floats) -> tuple[Floats, Floats]:
    """Weights on features, and the bias that the constant of every record stands for."""
    kept = math.sqrt(1 - CONSTANT**2)
    return kept * solution[:-1], CONSTANT * solution[-1]


def _judged(logits: Floats, labels: NDArray[np.int64], task: Task) -> tuple[float, float]:
    """The temperature that suits PUBLIC records best, and the cross-entropy that it leaves."""
    guesses = probabilities_of(task)(torch.from_numpy(logits)).numpy()
    temperature = best_temperature(task, guesses, labels)
    fitted = at_temperature(task, guesses, temperature)
    if task is Task.SINGLE_LABEL:
        chances = fitted[np.arange(len(labels)), labels]
    else:
        known = labels != UNKNOWN
        chances = np.where(labels == 1, fitted, 1 - fitted)[known]
    return temperature, float(-np.log(np.clip(chances, _TINY, 1)).mean())
