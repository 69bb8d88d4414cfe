"""Whether what a campaign released names records of its pool.

All ids of the pool are looked for, which are public. Which files name those that were *selected*
would itself tell who was: it is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from dpal.audit.findings import AuditFinding, Layer
from dpal.files.artifacts import CONFIDENTIAL

_SHORTEST = 5  # characters of an id that does not turn up in other words by chance
_MOST = 500  # ids that are looked for at once
_WORD = re.compile(r"\w+")
_PRINTED = re.compile(rb"[\t\n\r -~]{6,}")  # what a file that is no text may say


def released_finding(folder: Path, ids: Iterable[str]) -> AuditFinding:
    """Searches everything beside the confidential files for ids of records.

    Args:
      folder: of a campaign whose selections are hidden.
      ids: of all records of its pool, read once; only those of five characters and more, not all
        of them digits, can be told from other words.
    """
    words = {word for path in _released(folder) for word in _WORD.findall(_text_of(path))}
    # Of ids whose words all stand somewhere: whether they stand together is looked at then.
    likely = [name for name in ids if _is_telling(name) and words.issuperset(_WORD.findall(name))]
    paths = [path for path in _released(folder) if _names_one(_text_of(path), likely)]
    return AuditFinding(
        layer=Layer.SELECTION,
        what="released files naming a record",
        expected="none",
        measured=", ".join(str(path.relative_to(folder)) for path in paths) or "none",
        passed=not paths,
        likely="who was selected leaves the campaign, and is charged as if it did not",
    )


def naming_ids(texts: Iterable[str], ids: Sequence[str]) -> list[str]:
    """The texts in which one of the first 500 ids stands as a word by itself."""
    telling = [name for name in ids if len(name) >= _SHORTEST][:_MOST]
    return [text for text in texts if _names_one(text, telling)]


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST and not name.isdecimal()


def _names_one(text: str, ids: Sequence[str]) -> bool:
    """Whether one of some ids stands in a text as a word by itself."""
    for first in range(0, len(ids), _MOST):
        pattern = "|".join(map(re.escape, ids[first : first + _MOST]))
        if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text):
            return True
    return False


def _released(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and CONFIDENTIAL not in path.relative_to(folder).parts:
            yield path


def _text_of(path: Path) -> str:
    """What a file says: a table, with every value in it, and what can be read of other bytes."""
    content = path.read_bytes()
    text = _readable(content)
    if content.startswith(b"PAR1"):
        columns = pq.read_table(path).columns
        values = [str(value) for column in columns for value in column.to_pylist()]
        return " ".join([text, *values])
    return text


def _readable(content: bytes) -> str:
    if b"\0" not in content:
        try:
            return content.decode()
        except UnicodeDecodeError:
            pass
    return "\n".join(part.decode("ascii") for part in _PRINTED.findall(content))
