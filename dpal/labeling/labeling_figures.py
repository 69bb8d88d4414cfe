"""How often annotators agreed about a query, and how long their labels took.

Confidential: figures of selected records, without noise. Whoever runs the labeling sees them;
they are kept beside the query and stand in nothing that leaves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from dpal.errors import DataError
from dpal.files.atomic_writes import write_text
from dpal.labeling.label_aggregation import Opinion, UnlabeledReason
from dpal.labels import Label

_HOUR = 3600.0  # seconds
_SLOW = 0.9  # a quantile


@dataclass(frozen=True, kw_only=True)
class LabelingFigures:
    """What came of one query.

    What one person decides about disputed records is in no figure of agreement or time:
    whoever decides sees what the others said.

    Attributes:
      records: that were asked for.
      unlabeled: how many of them have no label, by reason.
      annotators: people who gave a label, or skipped a record.
      answers: labels that they gave.
      compared: records that have labels of two people or more.
      unanimous: share of these of which all said the same; None where there are none.
      pairwise: share of pairs of labels of one record that are the same; None likewise.
      kappa: agreement of these pairs beyond chance, 1 at most; None where there are none, or
        where nothing but one label was ever given.
      timed: labels of which it is known how long they took.
      median_seconds: that these took; None where there are none.
      slow_seconds: within which nine of ten of them were given; None likewise.
      labels_per_hour: of them, in the time of one person; None likewise.
    """

    records: int
    unlabeled: Mapping[str, int]
    annotators: int
    answers: int
    compared: int
    unanimous: float | None
    pairwise: float | None
    kappa: float | None
    timed: int
    median_seconds: float | None
    slow_seconds: float | None
    labels_per_hour: float | None


def labeling_figures(
    opinions: Iterable[Sequence[Opinion]],
    *,
    records: int,
    unlabeled: Mapping[UnlabeledReason, int] | None = None,
) -> LabelingFigures:
    """Counts what people said of the records of a query.

    Args:
      opinions: what was said of each record, in the order of time; of each person the last counts.
      records: that were asked for.
      unlabeled: how many of them have no label, by reason.
    """
    latest = [list({one.annotator: one for one in said}.values()) for said in opinions]
    given = [[one for one in said if not isinstance(one.said, UnlabeledReason)] for said in latest]
    labels = [[one.said for one in said] for said in given]
    compared = [said for said in labels if len(said) > 1]
    pairs = [pair for said in compared for pair in permutations(said, 2)]
    seconds = [one.seconds for said in given for one in said if one.seconds is not None]
    return LabelingFigures(
        records=records,
        unlabeled={str(reason): count for reason, count in (unlabeled or {}).items() if count},
        annotators=len({one.annotator for said in latest for one in said}),
        answers=sum(map(len, labels)),
        compared=len(compared),
        unanimous=_share(len(set(said)) == 1 for said in compared),
        pairwise=_share(first == second for first, second in pairs),
        kappa=_kappa(pairs),
        timed=len(seconds),
        median_seconds=float(np.median(seconds)) if seconds else None,
        slow_seconds=float(np.quantile(seconds, _SLOW)) if seconds else None,
        labels_per_hour=_HOUR * len(seconds) / sum(seconds) if seconds else None,
    )


def write_labeling_figures(figures: LabelingFigures, path: Path) -> None:
    """Keeps the figures of a query, for their owner alone."""
    write_text(path, json.dumps(asdict(figures), indent=2) + "\n")


def read_labeling_figures(path: Path) -> LabelingFigures:
    """Reads them.

    Raises:
      DataError: the file is missing or damaged.
    """
    try:
        return LabelingFigures(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is missing or damaged; remove it, its figures are lost and the labels are not"
        ) from error


def _share(hits: Iterable[bool]) -> float | None:
    seen = list(hits)
    return sum(seen) / len(seen) if seen else None


def _kappa(
    pairs: Sequence[tuple[Label | UnlabeledReason, Label | UnlabeledReason]],
) -> float | None:
    """Cohen's kappa of all ordered pairs of labels of one record.

    Over ordered pairs both sides have the same shares of labels, those of all answers: this is
    Fleiss' kappa where all records have equally many, and Scott's pi where these are two. A record
    counts by its pairs. Several labels of one record are compared as one answer.

    Source:
      Fleiss (1971), Measuring nominal scale agreement among many raters.
    """
    numbers = {label: number for number, label in enumerate({said for said, _ in pairs})}
    if len(numbers) < 2:
        return None  # by chance they would agree as often
    from sklearn.metrics import cohen_kappa_score  # a second to import

    first, second = ([numbers[pair[side]] for pair in pairs] for side in (0, 1))
    return float(cohen_kappa_score(first, second))
