"""Cells of a CSV file that a spreadsheet shows and does not compute.

What begins like a formula gets an apostrophe before it, and what begins with an apostrophe gets
another one, so that every text comes back from its cell.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

from collections.abc import Iterable

_APOSTROPHE = "'"
# Also the wide signs of East Asian keyboards, and what begins a new cell or line to some programs.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


def as_cell(text: str) -> str:
    """A text as a cell; two different texts are never the same cell.

    >>> as_cell("=1+1"), as_cell("'quoted'"), as_cell("a=b")
    ("'=1+1", "''quoted'", 'a=b')
    """
    return _APOSTROPHE + text if text.startswith((*_FORMULA, _APOSTROPHE)) else text


def by_cell(texts: Iterable[str]) -> dict[str, str]:
    """Texts by what may stand in their cells when the file comes back.

    A program may have dropped the apostrophe, and a person may have written a text as it is: that
    is understood where no other text is written so.
    """
    wanted = list(texts)
    return {text: text for text in wanted} | {as_cell(text): text for text in wanted}
