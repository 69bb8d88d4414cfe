from __future__ import annotations

import pytest

from dpal.errors import ParameterError
from dpal.simulation.evaluation_parts import EvaluationPart, rows_in_part

NAMES = [f"r-{number:05d}" for number in range(4000)]
VALIDATION, TEST = EvaluationPart.VALIDATION, EvaluationPart.TEST


def names_in(part: EvaluationPart, names: list[str]) -> set[str]:
    return {names[row] for row in rows_in_part(names, part)}


def test_every_record_is_in_one_part():
    validation, test = rows_in_part(NAMES, VALIDATION), rows_in_part(NAMES, TEST)
    assert sorted(validation + test) == list(range(len(NAMES)))
    assert validation == sorted(validation)
    assert len(test) == pytest.approx(2000, abs=160)  # five standard deviations of a fair coin


def test_a_record_stays_in_its_part_whatever_is_beside_it():
    """So that nothing chosen today has seen what is reported tomorrow."""
    backwards, some = NAMES[::-1], NAMES[100:1900:3]
    assert names_in(TEST, backwards) == names_in(TEST, NAMES)
    assert names_in(TEST, some) == names_in(TEST, NAMES) & set(some)


def test_parts_stay_what_they_are_in_later_versions():
    """Another coin would put into the test part what settings were chosen on before."""
    first = rows_in_part([f"mnist-test-{number:05d}" for number in range(16)], TEST)
    assert first == [1, 2, 3, 5, 6, 7, 8, 10, 12, 14, 15]


def test_too_few_records_are_refused():
    with pytest.raises(ParameterError):
        rows_in_part(NAMES[:1], TEST)
