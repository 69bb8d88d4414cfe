"""What is read ahead comes in order, once, and its errors where its value would have come."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dpal.data.decoded_ahead import decoded_ahead, one_ahead
from dpal.data.readers import BATCH_ROWS, decoded_of, raw_batches
from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from tests.data.test_pictures import noise, saved


def test_the_next_value_is_made_while_one_is_worked_on():
    made = threading.Event()

    def values() -> Generator[int, None, None]:
        yield 1
        made.set()
        yield 2

    coming = one_ahead(values())
    assert next(coming) == 1
    assert made.wait(60)  # nobody asked for the second one
    assert list(coming) == [2]


def test_no_more_than_one_value_waits():
    made: list[int] = []

    def values() -> Generator[int, None, None]:
        for number in range(10):
            made.append(number)
            yield number

    seen = []
    for value in one_ahead(values()):
        seen.append(value)
        assert len(made) <= value + 2
    assert seen == made == list(range(10))
    assert list(one_ahead(number for number in range(0))) == []


def test_an_error_comes_after_all_values_before_it():
    damaged = DataError("the third one is damaged")

    def values() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise damaged

    seen: list[int] = []
    with pytest.raises(DataError) as found:
        seen.extend(one_ahead(values()))
    assert found.value is damaged
    coming = one_ahead(values())
    assert [next(coming), next(coming)] == [1, 2]
    with pytest.raises(DataError):
        next(coming)


def reading() -> list[str]:
    return [one.name for one in threading.enumerate() if "reading ahead" in one.name]


def test_no_thread_and_no_source_is_left_open_of_what_nobody_reads_to_its_end():
    closed: list[int] = []

    def values() -> Generator[int, None, None]:
        try:
            yield from range(100)
        finally:
            closed.append(1)

    coming = one_ahead(values())
    assert next(coming) == 0
    coming.close()
    assert reading() == [] and closed == [1]
    with suppress(DataError):
        for _ in one_ahead(values()):
            raise DataError("of whoever reads")
    assert reading() == [] and closed == [1, 1]
    assert list(one_ahead(values())) == list(range(100))
    assert reading() == [] and closed == [1, 1, 1]


def test_an_error_keeps_nothing_of_what_was_read():
    gone = []

    class Read:
        def __del__(self) -> None:
            gone.append(1)

    def values() -> Generator[Read, None, None]:
        yield Read()
        raise DataError("damaged")

    gc.disable()
    try:
        with suppress(DataError):
            for value in one_ahead(values()):
                del value
        assert gone == [1]
    finally:
        gc.enable()


def test_an_interrupt_waits_for_nothing():
    goes_on = threading.Event()

    def values() -> Generator[int, None, None]:
        yield 1
        goes_on.wait(60)
        yield 2

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        coming, began = one_ahead(values()), time.monotonic()
        assert next(coming) == 1
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(coming)
        assert time.monotonic() - began < 30
    finally:
        goes_on.set()
        signal.signal(signal.SIGINT, before)


def test_decoded_records_come_with_their_batch_and_damage_with_its_row(tmp_path):
    content = [saved(noise("L", seed)) for seed in range(2 * BATCH_ROWS)]
    content[BATCH_ROWS + 7] = b"no picture"
    names = [f"r-{number}" for number in range(len(content))]
    pq.write_table(pa.table({"id": names, "image": content}), tmp_path / "p.parquet")
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
    read = decoded_ahead(source, raw_batches(source, ["image"]))
    batch, records = next(read)
    assert batch.rows.tolist() == list(range(BATCH_ROWS))
    alone = decoded_of(source, batch.table.column(0), rows=batch.numbers)
    assert torch.equal(records, alone)
    with pytest.raises(DataError) as found:
        next(read)
    assert f"row {BATCH_ROWS + 7} " in found.value.for_owner()
