"""Scores of records, computed where the records can be read.

The same code scores in the campaign's own process and on the workers of a cluster, batch by
batch of the file: the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load
from torch import nn

from dpal.acquisition.scores import Scores, score, score_function
from dpal.acquisition.strata import Strata, strata_of
from dpal.config.campaign import CampaignConfig
from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.file_shards import Shard, shard_batches
from dpal.data.readers import apply_extractor, usual_batches
from dpal.data.sources import Role, Source
from dpal.errors import DataError, ParameterError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import Acquisition
from dpal.randomness import Words
from dpal.runs.open_sources import open_sources
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.checkpoints import carried_committee
from dpal.training.committee import committee_of
from dpal.training.mc_dropout import Masks, draw_masks
from dpal.training.score_inputs import ScoredModel, ScoreInputs


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How records are scored: where model and records lie, none of them themselves.

    Attributes:
      config: the campaign's settings as JSON, with absolute paths.
      role: which of the campaign's files is scored.
      model: the architecture.
      weights: file of the model's weights; None for those that its seed draws.
      digest: SHA-256 of that file; None where there is none.
      acquisition: the score.
      clipped: whether scores are cut at their public bound.
      device: where the model runs.
      mask_word: what the masks of dropout are drawn from, the same for all records; None
        for a score that has no dropout.
      carried: file with the committee of the training before, and its digest; None for a score
        that asks none.
      strata: of public records, as bytes, within which scores are ranked; None for no ranks.
    """

    config: str
    role: Role
    model: ModelSpec
    weights: Path | None
    digest: str | None
    acquisition: Acquisition
    clipped: bool
    device: str
    mask_word: int | None
    carried: tuple[Path, str] | None = None
    strata: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class ScoringPart:
    """A shard to be scored, and how."""

    scoring: Scoring
    shard: Shard


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """Scores of consecutive rows. Private: they stay in memory.

    Attributes:
      first_row: position of the first among the rows of the pool.
      scores: (n,) of all of them, labeled or not.
    """

    first_row: int
    scores: Scores

    @property
    def rows(self) -> NDArray[np.int64]:
        """Positions of all rows, shape (n,)."""
        return np.arange(self.first_row, self.first_row + self.scores.size, dtype=np.int64)

    def __repr__(self) -> str:
        return "ScoredBatch(private)"  # wherever it might be printed or logged


# Scores are no release: they stay in memory, are never persisted, and may be computed twice.
def score_shard(part: ScoringPart) -> list[ScoredBatch]:
    """Scores one shard, on a worker."""
    opened = _opened_on_worker(part.scoring)
    return list(opened.scored(part.shard))


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A model and a pool, opened to be scored.

    Attributes:
      scoring: what it was opened from.
      pool: the records.
      model: on its device.
      strata: within which scores are ranked, if they are.
    """

    scoring: Scoring
    pool: Source
    model: ScoredModel
    strata: Strata | None

    def scored(self, shard: Shard) -> Iterator[ScoredBatch]:
        """Yields the scores of a shard, one batch after the other.

        Raises:
          DataError: the file cannot be read, or is another than the campaign's.
        """
        for first_row, read in self.read(shard):
            yield ScoredBatch(first_row, self.scores_of(read))

    def read(self, shard: Shard) -> Iterator[tuple[int, ScoreInputs]]:
        """Yields what the model says of a shard, batch by batch, with the batch's first row.

        Labeled records go through the model, too: who shares a batch with whom must not depend on
        who was selected, or another record's rounding would.
        """
        columns = [self.pool.content.value]
        for batch, decoded in decoded_ahead(
            self.pool, shard_batches(self.pool, shard, columns, large=True)
        ):
            # Rounding may depend on how many records a model reads at once.
            for part in usual_batches(batch):
                inputs = apply_extractor(self.pool, decoded[part])
                yield batch.first_row + part.start, self.model.read(inputs)

    def scores_of(self, read: ScoreInputs) -> Scores:
        """Scores (n,) of what the model said."""
        return score(
            self.scoring.acquisition,
            read.probabilities,
            task=self.scoring.model.task,
            clipped=self.scoring.clipped,
            strata=self.strata,
            embeddings=read.embeddings,
        )


def strata_among(scorer: Scorer, shards: Sequence[Shard], rows: NDArray[np.int64]) -> Strata:
    """Strata of public records, by the scores that they have before they are ranked.

    Args:
      scorer: of the public records, without strata.
      shards: of them, in order.
      rows: (m,) positions of those that count.

    Raises:
      ParameterError: the acquisition ranks within none.
    """
    spec = scorer.scoring.model
    read = [read for shard in shards for _, read in scorer.read(shard)]
    embeddings = [part.embeddings for part in read if part.embeddings is not None]
    function = score_function(scorer.scoring.acquisition, task=spec.task)
    if function.strata is None:
        raise ParameterError(f"acquisition {scorer.scoring.acquisition} has no strata")
    return strata_of(
        function.strata,
        np.concatenate([scorer.scores_of(part) for part in read])[rows],
        np.concatenate([part.probabilities for part in read], axis=-2)[..., rows, :],
        np.concatenate(embeddings)[rows] if embeddings else None,
        width=function.score_width(spec.classes, clipped=scorer.scoring.clipped),
    )


def open_scorer(scoring: Scoring, pool: Source | None = None) -> Scorer:
    """Loads the model and opens the pool.

    Args:
      scoring: how records are scored.
      pool: already opened; None opens what the settings name.

    Raises:
      DataError: a file is missing, or is another than the campaign's.
    """
    config = CampaignConfig.model_validate_json(scoring.config)
    model = build_model(scoring.model)
    if scoring.weights is not None:
        model.load_state_dict(load(_weights(scoring.weights, scoring.digest)))
    if scoring.device != "cpu":
        exact_arithmetic()
    model = model.to(scoring.device).eval()
    function = score_function(scoring.acquisition, task=scoring.model.task)
    masks: Masks = {}
    if scoring.mask_word is not None:
        masks = draw_masks(model, rng=_OneWord(scoring.mask_word))
    members: Sequence[nn.Module] = ()
    if scoring.carried is not None:
        members = committee_of(model, carried_committee(_weights(*scoring.carried)))
    return Scorer(
        scoring=scoring,
        pool=_source(config, scoring.role) if pool is None else pool,
        model=ScoredModel(
            model=model,
            task=scoring.model.task,
            classes=scoring.model.classes,
            physical_batch=config.runtime.physical_batch,
            masks=masks,
            members=members,
            reads_embeddings=function.reads_embeddings,
        ),
        strata=None if scoring.strata is None else Strata.from_bytes(scoring.strata),
    )


@lru_cache(maxsize=1)  # a worker scores many shards alike
def _opened_on_worker(scoring: Scoring) -> Scorer:
    return open_scorer(scoring)


def _source(config: CampaignConfig, role: Role) -> Source:
    return next(source for source in open_sources(config) if source.role is role)


def _weights(path: Path, digest: str | None) -> bytes:
    try:
        weights = path.read_bytes()
    except OSError as error:
        raise DataError.before_release(
            f"{path} cannot be read here ({type(error).__name__}); workers need the campaign's "
            "artifacts folder under the same path"
        ) from error
    if sha256(weights).hexdigest() != digest:
        raise DataError.before_release(
            f"{path} is not the model that the campaign selects by; restore it"
        )
    return weights


class _OneWord:
    """The word that the campaign drew for the masks, once for all workers."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, count: int) -> Words:
        if count != 1:
            raise ValueError(f"the campaign drew one word for its masks, {count} were asked for")
        return np.full(count, self._word, dtype=np.uint64)
