"""Scores of records, computed where the records can be read.

The same code scores in the campaign's own process and on the workers of a cluster, batch by
batch of the file: the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import nn

from dpal.acquisition.scores import Scores, score, score_function
from dpal.config.campaign import CampaignConfig
from dpal.data.readers import records_of
from dpal.data.shards import Shard, shard_batches
from dpal.data.sources import Role, Source
from dpal.errors import DataError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import Acquisition
from dpal.randomness import Words
from dpal.runs.open_sources import open_sources
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.evaluation import probabilities
from dpal.training.losses import probabilities_of
from dpal.training.mc_dropout import Masks, draw_masks, mc_probabilities


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
      model: in evaluation mode, on its device.
      masks: of dropout; empty for a score that has none.
      physical_batch: records per forward pass.
    """

    scoring: Scoring
    pool: Source
    model: nn.Module
    masks: Masks
    physical_batch: int

    def scored(self, shard: Shard) -> Iterator[ScoredBatch]:
        """Yields the scores of a shard, one batch after the other.

        Raises:
          DataError: the file cannot be read, or is another than the campaign's.
        """
        for batch in shard_batches(self.pool, shard, [self.pool.content.value]):
            inputs = records_of(self.pool, batch.table.column(0), rows=batch.numbers)
            yield ScoredBatch(batch.first_row, self._scores(inputs))

    def _scores(self, inputs: torch.Tensor) -> Scores:
        # Labeled records go through the model, too: who shares a batch with whom must not
        # depend on who was selected, or another record's rounding would.
        about, physical = self.scoring.model.task, self.physical_batch
        if self.masks:
            guesses = mc_probabilities(
                self.model,
                inputs,
                self.masks,
                physical_batch=physical,
                to_probabilities=probabilities_of(about),
            )
        else:
            guesses = probabilities(self.model, inputs, physical_batch=physical, task=about)
        return score(self.scoring.acquisition, guesses, task=about, clipped=self.scoring.clipped)


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
    model = model.to(scoring.device)
    reads_passes = score_function(scoring.acquisition, task=scoring.model.task).reads_passes
    masks: Masks = {}
    if reads_passes and scoring.mask_word is not None:
        masks = draw_masks(model, rng=_OneWord(scoring.mask_word))
    return Scorer(
        scoring=scoring,
        pool=_source(config, scoring.role) if pool is None else pool,
        model=model,
        masks=masks,
        physical_batch=config.runtime.physical_batch,
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
