"""What is read ahead comes in order, once, and its errors where its value would have come."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dpal.data.read_ahead import read_ahead
from dpal.errors import DataError


def test_the_next_value_is_made_while_one_is_worked_on():
    made = threading.Event()

    def values() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    coming = read_ahead(values())
    assert next(coming) == 1
    assert made.wait(60)  # nobody asked for the second one
    assert list(coming) == [2]


def test_no_more_than_one_value_waits():
    made: list[int] = []

    def values() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    seen = []
    for value in read_ahead(values()):
        seen.append(value)
        assert len(made) <= value + 2
    assert seen == made == list(range(10))
    assert list(read_ahead(iter(()))) == []


def test_an_error_comes_after_all_values_before_it():
    damaged = DataError("the third one is damaged")

    def values() -> Iterator[int]:
        yield 1
        yield 2
        raise damaged

    seen: list[int] = []
    with pytest.raises(DataError) as found:
        seen.extend(read_ahead(values()))
    assert found.value is damaged
    coming = read_ahead(values())
    assert [next(coming), next(coming)] == [1, 2]
    with pytest.raises(DataError):
        next(coming)


def test_no_thread_is_left_of_what_nobody_reads_to_its_end():
    closed = []

    def values() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    source = values()
    coming = read_ahead(source)
    assert next(coming) == 0
    coming.close()
    left = [thread.name for thread in threading.enumerate() if "reading ahead" in thread.name]
    assert left == []
    source.close()
    assert closed == [True]
