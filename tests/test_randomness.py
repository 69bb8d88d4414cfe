"""A stream of noise belongs to one process."""

from __future__ import annotations

import os
import pickle

import pytest

from dpal.errors import NoiseReused
from dpal.randomness import SecureBits, secure


def in_a_fork(what) -> bytes:
    """Runs something in a forked process and returns what it writes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, what())
        except NoiseReused as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 4096)
    os.close(reading)
    os.waitpid(child, 0)
    return said


def test_a_forked_process_is_refused_the_stream():
    bits = secure()
    bits.words(3)
    said = in_a_fork(lambda: bits.words(4).tobytes()).decode()
    assert "forked" in said
    assert NoiseReused.closing in said
    assert bits.words(4).size == 4  # the one that made it goes on


def test_a_fresh_stream_in_the_fork_is_another():
    here = secure().words(4).tobytes()
    there = in_a_fork(lambda: secure().words(4).tobytes())
    assert len(there) == len(here)
    assert there != here


def test_without_the_check_both_would_draw_the_same(monkeypatch):
    """Why it is there."""
    monkeypatch.setattr("dpal.randomness.os.getpid", lambda: 1)
    bits = SecureBits()
    there = in_a_fork(lambda: bits.words(4).tobytes())
    assert there == bits.words(4).tobytes()


def test_a_stream_is_never_stored():
    with pytest.raises(TypeError, match="never stored"):
        pickle.dumps(secure())
