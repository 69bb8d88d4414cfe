"""What teachers release: votes on public records leave once, round by round."""

from __future__ import annotations

import numpy as np

from dpal.data.labeling_state import write_selection
from dpal.runs.ballot_and_label_tables import read_public_answers
from dpal.runs.choose_queries import asked_in, asked_rows
from dpal.runs.near_votes import release_near
from dpal.runs.prepare_ensemble import Ensemble
from dpal.runs.public_model import public_answers
from dpal.runs.teachers import cast_votes, forget_grouped, load_inputs
from dpal.runs.vote_account import read_ballots_file, release_ballot_block


def release_labels(ensemble: Ensemble, number: int = 1) -> None:
    """Asks the teachers about the public records of a round and releases the votes, once."""
    forget_grouped(ensemble)  # a worker of a pool may have died before it did
    if not ensemble.has_teachers:
        release_near(ensemble, number)
        return
    last = number == ensemble.rounds[-1]
    kept = ensemble.account.ballots_file(number)
    purpose = "student" if number == 1 else f"student/{number}"
    if kept.exists() and (ensemble.files.selection.exists() or not last):
        # As they were cast: another machine may round otherwise and would take another block.
        ids, ballots = read_ballots_file(kept)
        public = read_public_answers(kept)
        release_ballot_block(ensemble.account, ids, ballots, purpose=purpose, public=public)
        return
    ids, inputs = load_inputs(ensemble.public, asked_in(ensemble, number))
    ballots, public = cast_votes(ensemble, inputs), public_answers(ensemble, inputs)
    if last:
        rows = asked_rows(ensemble)
        write_selection(ensemble.public, rows, np.empty(0, np.int64), ensemble.files.selection)
    release_ballot_block(ensemble.account, ids, ballots, purpose=purpose, public=public)
