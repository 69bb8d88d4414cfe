"""Agreement and time, against printed figures, another way to the same number, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from dpal.errors import DataError
from dpal.labeling.label_aggregation import Opinion, UnlabeledReason
from dpal.labeling.labeling_figures import (
    labeling_figures,
    read_labeling_figures,
    write_labeling_figures,
)

SKIPPED = UnlabeledReason.SKIPPED


def said(*labels, seconds=()):
    """What as many people said of one record."""
    times = [*seconds, *[None] * len(labels)]
    return [
        Opinion(said=label, annotator=f"person {number}", seconds=times[number])
        for number, label in enumerate(labels)
    ]


def figures(*records):
    return labeling_figures(records, records=len(records))


# 14 people and 10 records with 5 classes; printed beside it: kappa 0.210 (0.20993 unrounded).
# Wikipedia, "Fleiss' kappa", worked example.
COUNTS = [
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
]  # fmt: skip


def test_kappa_is_the_printed_one():
    records = [
        said(*[label for label, count in enumerate(counts) for _ in range(count)])
        for counts in COUNTS
    ]
    found = figures(*records)
    assert found.kappa == pytest.approx(0.210, abs=5e-4)
    assert found.pairwise == pytest.approx(0.378, abs=5e-4)  # its P-bar
    assert found.unanimous == 0.1
    assert (found.annotators, found.answers, found.compared) == (14, 140, 10)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_of_two_people_it_is_scotts_pi(pairs):
    shares = [sum(pair.count(label) for pair in pairs) / (2 * len(pairs)) for label in range(3)]
    chance, same = sum(share**2 for share in shares), sum(a == b for a, b in pairs) / len(pairs)
    found = figures(*[said(*pair) for pair in pairs])
    assert found.pairwise == found.unanimous == pytest.approx(same)
    if max(shares) == 1:
        assert found.kappa is None
    else:
        assert found.kappa == pytest.approx((same - chance) / (1 - chance))


def test_where_both_say_each_class_as_often_it_is_cohens():
    first, second = [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0]
    found = figures(*[said(*pair) for pair in zip(first, second, strict=True)])
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second))


def test_only_labels_are_compared():
    found = labeling_figures(
        [said(1, 1, SKIPPED), said(0, SKIPPED), said((1, 0), (1, 0), (1, 1)), []],
        records=5,
        unlabeled={SKIPPED: 2, UnlabeledReason.WAITING: 1, UnlabeledReason.DISPUTED: 0},
    )
    assert (found.compared, found.unanimous) == (2, 0.5)
    assert found.pairwise == pytest.approx(2 / 4)
    assert (found.records, found.unlabeled) == (5, {"skipped": 2, "waiting": 1})
    assert (found.annotators, found.answers) == (3, 6)


def test_nobody_agrees_with_themselves():
    """What a person says again replaces what that person said before."""
    earlier = Opinion(said=0, annotator="ann", seconds=100.0)
    later = Opinion(said=1, annotator="ann", seconds=8.0)
    found = figures([earlier, later], [earlier, Opinion(said=SKIPPED, annotator="ann")])
    assert (found.compared, found.unanimous, found.pairwise, found.kappa) == (0, None, None, None)
    assert (found.answers, found.timed, found.median_seconds) == (1, 1, 8.0)


def test_times_are_those_of_labels_that_have_one():
    times = [float(second) for second in range(1, 12)]
    records = [
        *[said(1, seconds=[second]) for second in times],
        said(1),
        said(SKIPPED, seconds=[99.0]),
    ]
    found = figures(*records)
    assert (found.timed, found.answers) == (11, 12)
    assert (found.median_seconds, found.slow_seconds) == (6.0, 10.0)
    assert found.labels_per_hour == pytest.approx(11 / (66 / 3600))
    without = figures(said(1))
    assert without.median_seconds is without.slow_seconds is without.labels_per_hour is None


def test_they_come_back_and_are_their_owners(tmp_path):
    path = tmp_path / "query" / "labeling.json"
    found = figures(said(1, 0, seconds=[2.5, 4.0]), said(1, 1))
    write_labeling_figures(found, path)
    assert read_labeling_figures(path) == found
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [None, "{", "[]", '{"records": 3}'])
def test_a_damaged_file_is_said(tmp_path, content):
    path = tmp_path / "labeling.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError):
        read_labeling_figures(path)
