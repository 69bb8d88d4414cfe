"""Parts of a labeled file: one that settings are chosen on, and one that is only reported."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum

from dpal.errors import ParameterError

_SALT = b"dpal evaluation part/"
_LEAST = 2  # records of a part


class EvaluationPart(StrEnum):
    """Records that a rehearsal is judged on.

    VALIDATION: to choose settings by, as often as one likes.
    TEST: to report what was chosen, and nothing else.
    """

    VALIDATION = "validation"
    TEST = "test"


def rows_in_part(ids: Sequence[str], part: EvaluationPart) -> list[int]:
    """Positions of the records of a part, ascending.

    Each record is in one of the two by a fair coin, a bit of SHA-256 of its id. So it is in the
    same part for every model, feature and setting, in any order of the file and beside any other
    records: nothing that was chosen on the one part has seen the other.

    Args:
      ids: (m,) unique names of records.
      part: which one.

    Raises:
      ParameterError: it has fewer than two records.
    """
    wanted = part is EvaluationPart.TEST
    rows = [row for row, name in enumerate(ids) if _coin(name) is wanted]
    if len(rows) < _LEAST:
        raise ParameterError(
            f"the {part} part of {len(ids):,} labeled records has {len(rows)} of them and needs "
            f"{_LEAST} or more; give data.validation more records"
        )
    return rows


def _coin(name: str) -> bool:
    return bool(hashlib.sha256(_SALT + name.encode()).digest()[0] & 1)
