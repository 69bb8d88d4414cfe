"""Numbers and dates in forms that are not read, because they might mean something else.

1,234 is more than a thousand to some and little more than one to others, who write 1.234,5 for more
than a thousand; 03/04/2024 is a day in March or in April. So nobody guesses: the owner is told how
to write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOST = 0.9  # share of records that have the form
_WITH_COMMA = re.compile(
    r"[+-]?(?:\d+(?:,\d+)+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+)(?:[eE][+-]?\d+)?"
)
_WHOLE = re.compile(r"[+-]?\d+")
_DAY_OR_MONTH_FIRST = re.compile(r"\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d{2})(?:[ T]\d{1,2}:.*)?")

COMMAS = "looks like numbers with a comma; write 27.3 for 27,3, and 1234 for 1,234"
DATES = "looks like dates; write 2024-12-31 for 31/12/2024"


def odd_form(texts: Mapping[str, int]) -> str | None:
    """What texts of a column look like, and how to write it; None where they look like neither.

    Args:
      texts: how many held-out records have each.
    """
    enough = _MOST * sum(texts.values())
    dates = sum(count for text, count in texts.items() if _DAY_OR_MONTH_FIRST.fullmatch(text))
    if dates and dates >= enough:
        return DATES
    commas = sum(count for text, count in texts.items() if _WITH_COMMA.fullmatch(text))
    whole = sum(count for text, count in texts.items() if _WHOLE.fullmatch(text))
    return COMMAS if commas and commas + whole >= enough else None
