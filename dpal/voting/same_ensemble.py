"""Whether two ensembles are one, as far as their ballots on the same queries show.

Teachers are recognised by what they answered, whatever they are called and in whatever order they
stand. That two ensembles answer differently proves nothing: scores may have been cut elsewhere, or
teachers trained again on the same records. Private, as ballots are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np

from dpal.voting.ballots import Ballots, Choices

Said = tuple[Sequence[str], Ballots | Choices]  # ids of queries, and the ballots on them

_FEWEST, _SHARE = 8, 0.75  # teachers, and of the larger ensemble, to be told apart and found


class Recognition(IntEnum):
    """What ballots show of two ensembles, the strongest finding last.

    Attributes:
      NOTHING: no shared queries, or other answers on them.
      ALIKE: at least half of the smaller ensemble answered as teachers of the other did. Good
        teachers do so on few or easy queries.
      SAME: three of four teachers of the larger ensemble, and 8, answered as exactly one teacher
        of the other and as nobody of their own. Different ensembles do not: where all teachers
        draw their answers independently and alike, about a fifth are expected to at most, whatever
        is asked: in each ensemble exactly one of n gives an answer of chance p with a chance of
        n p (1 - p)^(n - 1), and the square of that, summed over answers, is at most n / (2e) of
        many teachers.
    """

    NOTHING = 0
    ALIKE = 1
    SAME = 2


def recognised(asked: Said, others: Iterable[Said]) -> Recognition:
    """Compares ballots with those of another ensemble, block by block and over all blocks.

    Args:
      asked: ballots of one ensemble.
      others: blocks of the other; one at a time is held.
    """
    queries, ballots = asked
    row_of = {query: row for row, query in enumerate(queries)}
    strongest = Recognition.NOTHING
    mine: list[bytes] = []
    theirs: list[bytes] = []
    for ids, said in others:
        pairs = [(row_of[query], row) for row, query in enumerate(ids) if query in row_of]
        if not pairs or type(said) is not type(ballots) or said.labels != ballots.labels:
            continue
        my_rows, their_rows = zip(*pairs, strict=True)
        my_block, their_block = _answers(ballots, my_rows), _answers(said, their_rows)
        # Shared queries may be spread over blocks, or lie in two blocks with other answers.
        mine, theirs = _joined(mine, my_block), _joined(theirs, their_block)
        strongest = max(strongest, _compared(my_block, their_block), _compared(mine, theirs))
    return strongest


def _answers(ballots: Ballots | Choices, rows: Sequence[int]) -> list[bytes]:
    """A digest of what each teacher answered in some rows."""
    content = ballots.chosen if isinstance(ballots, Choices) else ballots.packed
    row_numbers = np.asarray(rows)
    return [
        hashlib.sha256(content[row_numbers, teacher].tobytes()).digest()
        for teacher in range(ballots.teachers)
    ]


def _joined(before: list[bytes], block: list[bytes]) -> list[bytes]:
    """Digests of all blocks so far."""
    if not before:
        return block
    return [
        hashlib.sha256(earlier + other).digest()
        for earlier, other in zip(before, block, strict=True)
    ]


def _compared(mine: Sequence[bytes], theirs: Sequence[bytes]) -> Recognition:
    ours, others = Counter(mine), Counter(theirs)
    smaller, larger = sorted((len(mine), len(theirs)))
    told_apart = sum(count == 1 == others[answers] for answers, count in ours.items())
    if told_apart >= max(_FEWEST, _SHARE * larger):
        return Recognition.SAME
    return Recognition.ALIKE if 2 * (ours & others).total() >= smaller else Recognition.NOTHING
