"""What teachers release: public records are drawn, and votes on them leave once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.data.labeling_state import write_selection
from dpal.randomness import seeded
from dpal.runs.ensemble import Ensemble
from dpal.runs.teachers import cast_votes, forget_grouped, load_inputs
from dpal.runs.vote_account import read_ballots_file, release_ballot_block


def release_labels(ensemble: Ensemble) -> None:
    """Asks the teachers about public records and releases the votes, once."""
    forget_grouped(ensemble)  # a worker of a pool may have died before it did
    if ensemble.account.ballots_file(1).exists() and ensemble.files.selection.exists():
        # As they were cast: another machine may round otherwise and would take another block.
        ids, ballots = read_ballots_file(ensemble.account.ballots_file(1))
        release_ballot_block(ensemble.account, ids, ballots, purpose="student")
        return
    rows = asked_rows(ensemble)
    ids, inputs = load_inputs(ensemble.public, rows)
    ballots = cast_votes(ensemble, inputs)
    write_selection(ensemble.public, rows, np.empty(0, np.int64), ensemble.files.selection)
    release_ballot_block(ensemble.account, ids, ballots, purpose="student")


def asked_rows(ensemble: Ensemble) -> NDArray[np.int64]:
    """Rows of the public pool that the teachers are asked about; public."""
    draw = seeded(ensemble.config.voting.seed, "asked public records")
    rows = draw.permutation(ensemble.public_rows)[: ensemble.offered]
    return np.sort(rows).astype(np.int64)
