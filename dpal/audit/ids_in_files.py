"""Whether what a campaign released names records that it keeps to itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from dpal.audit.findings import AuditFinding, Layer
from dpal.files.artifacts import CONFIDENTIAL

_SHORTEST = 5  # characters of an id that does not turn up in other words by chance
_MOST = 500  # ids that are looked for


def released_findings(folder: Path, ids: Sequence[str]) -> list[AuditFinding]:
    """Searches everything beside the confidential files for ids of selected records.

    Args:
      folder: of a campaign whose selections are hidden.
      ids: of records that were selected; only those of five characters and more can be told
        from other words.
    """
    telling = _telling(ids)
    if not telling:
        return []
    paths = [path for path in _released(folder) if naming_ids([_text_of(path)], telling)]
    return [
        AuditFinding(
            layer=Layer.SELECTION,
            what="released files naming a selected record",  # of how many is confidential
            expected="none",
            measured=", ".join(str(path.relative_to(folder)) for path in paths) or "none",
            passed=not paths,
            likely="who was selected leaves the campaign, and is charged as if it did not",
        )
    ]


def naming_ids(texts: Iterable[str], ids: Sequence[str]) -> list[str]:
    """The texts in which one of the ids stands as a word by itself."""
    telling = _telling(ids)
    if not telling:
        return []
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, telling)) + r")(?!\w)")
    return [text for text in texts if pattern.search(text)]


def _telling(ids: Sequence[str]) -> list[str]:
    return [record_id for record_id in ids if len(record_id) >= _SHORTEST][:_MOST]


def _released(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and CONFIDENTIAL not in path.relative_to(folder).parts:
            yield path


def _text_of(path: Path) -> str:
    """A file's bytes as text; a table with every value in it, uncompressed."""
    content = path.read_bytes()
    text = content.decode("latin-1")
    if content.startswith(b"PAR1"):
        columns = pq.read_table(path).columns
        values = [str(value) for column in columns for value in column.to_pylist()]
        return " ".join([text, *values])
    return text
