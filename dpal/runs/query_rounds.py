"""Queries in rounds: a student of the answers so far chooses which public records come next.

The choice reads public records and released answers, and nothing else: it costs no epsilon. How
many are asked in each round is fixed beforehand, and each round is charged in full whatever is
asked, so that the promise holds for queries that were chosen in view of earlier answers. Who was
chosen is written down before a teacher is asked: a run that was killed goes on with the same.

Source: scores are those of campaigns (`dpal.acquisition.scores`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file
from torch import nn

from dpal.acquisition.scores import score
from dpal.config.pate_sections import QueryAcquisition
from dpal.data.readers import raw_batches, records_of
from dpal.files.atomic_writes import atomic_write
from dpal.models.build_model import build_model
from dpal.planning.campaign_spec import Acquisition
from dpal.runs.choose_queries import (
    Floats,
    answers_until,
    asked_in,
    shares_until,
    shuffled_rows,
    write_asked,
)
from dpal.runs.ensemble_hold import require_held
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.repeatable_training import RepeatableTraining
from dpal.runs.student import student_from
from dpal.runs.teachers import scores_of
from dpal.runs.vote_account import read_released
from dpal.voting.draw_noisy_outcomes import UNANSWERED


def train_chooser(ensemble: Ensemble) -> None:
    """Trains the student that chooses the next round, where one does and is not there yet."""
    for path in _chooser(ensemble):
        if not path.exists():
            last = _next_round(ensemble) - 1
            shares = shares_until(ensemble, last)
            model = student_from(ensemble, *answers_until(ensemble, last), shares)
            tensors = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
            with atomic_write(path) as temporary:
                save_file(tensors, temporary)


def choose_queries(ensemble: Ensemble, number: int) -> None:
    """Writes down which public records a round asks; again, it changes nothing."""
    path = ensemble.asked_file(number)
    if len(ensemble.rounds) == 1 or path.exists():
        return
    earlier = [asked_in(ensemble, before) for before in range(1, number)]
    asked = np.concatenate(earlier) if earlier else np.empty(0, np.int64)
    order = shuffled_rows(ensemble)
    left = order[~np.isin(order, asked)]
    wanted = ensemble.offered_in(number)
    weights = ensemble.chooser_file(number)
    if not weights.exists():
        write_asked(ensemble, number, np.sort(left[:wanted]), None)
        return
    model = build_model(ensemble.model)
    model.load_state_dict(load_file(weights))
    unsure = _unsure(ensemble, model.to(ensemble.device))
    # Equally unsure ones in the order by chance.
    chosen = left[np.argsort(-unsure[left], kind="stable")[:wanted]]
    write_asked(ensemble, number, np.sort(chosen), unsure, left)


def _next_round(ensemble: Ensemble) -> int:
    """The first round whose queries are not chosen yet; one more than there are once all are."""
    open_rounds = (number for number in ensemble.rounds if not ensemble.asked_file(number).exists())
    return next(open_rounds, len(ensemble.rounds) + 1)


def _chooser(ensemble: Ensemble) -> Sequence[Path]:
    """The weights that the next round waits for; none where it is drawn by chance."""
    number = _next_round(ensemble)
    by_chance = ensemble.config.voting.acquisition is QueryAcquisition.RANDOM
    if by_chance or number == 1 or number > len(ensemble.rounds):
        return []
    released = [ensemble.account.released_file(earlier) for earlier in range(1, number)]
    if not all(path.exists() for path in released):
        return []  # the round before is chosen and not answered yet
    if all((read_released(path)[1] == UNANSWERED).all() for path in released):
        return []  # nobody can learn from no answer
    return [ensemble.chooser_file(number)]


def _unsure(ensemble: Ensemble, model: nn.Module) -> Floats:
    """How unsure a student is of every public record, by row."""
    acquisition = Acquisition(ensemble.config.voting.acquisition.value)
    parts = []
    for batch in raw_batches(ensemble.public, [ensemble.public.content.value]):
        inputs = records_of(ensemble.public, batch.table.column(0), rows=None)
        guesses = scores_of(ensemble, model, inputs)
        parts.append(score(acquisition, guesses, task=ensemble.model.task, clipped=False))
    return np.concatenate(parts)


CHOOSER = RepeatableTraining[Ensemble](
    name="chooser",
    train=train_chooser,
    makes=_chooser,
    require=require_held,
)
