"""What an import found and left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpal.data.sources import Content
from dpal.labels import Task


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What was found, and what was left out. It counts private records: for their owner alone.

    Attributes:
      importer: the kind of source.
      about: what was found, in words.
      content, task: what a record and its label are.
      classes: names in class order.
      rows: records written, by part.
      counts: records of each class or label, by part.
      unknown: labels among several that are not known.
      unlabeled: records written without a label.
      dropped: records left out, by reason.
      noted: what else was done to records, or is odd about them, and how often.
      unread: of columns of numbers, cells that are given and none, which count as missing.
      imputed, clipped, other: cells by column, see `ReadCells`.
      left_out: columns that became no feature, and why.
      repeated: of these, columns whose texts may say whose a record is, as held-out records share
        some; none where records belong to groups.
      columns: of a table, how each that became features is read; all of it is in the model, too.
      features: how many features a record of a table has; 0 for others.
      grouped: whether records belong to groups.
      told: whether the numbers by which columns are encoded may tell of records in the file.
    """

    importer: str
    about: str
    content: Content
    task: Task
    classes: tuple[str, ...]
    rows: Mapping[str, int]
    counts: Mapping[str, Sequence[int]]
    unknown: int
    unlabeled: int
    dropped: Mapping[str, int]
    noted: Mapping[str, int]
    unread: Mapping[str, int]
    imputed: Mapping[str, int]
    clipped: Mapping[str, int]
    other: Mapping[str, int]
    left_out: Mapping[str, str]
    repeated: Sequence[str]
    columns: Mapping[str, str]
    features: int
    grouped: bool
    told: bool
