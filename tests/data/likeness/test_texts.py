"""Texts are recognised in other spellings and with one typing error, and no further."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.data.likeness import texts
from dpal.data.likeness.record_sketches import Described
from tests.data.copies import SAME_TEXT, with_a_typo
from tests.data.rates import Share, is_at_least

SALT = bytes(range(32))
LONG = "The patient was seen on the ward after lunch and had no fever"


def described(*records: str | tuple[str, ...], salt: bytes = SALT) -> Described:
    rows = [(one,) if isinstance(one, str) else one for one in records]
    names = ["text_a", "text_b"][: len(rows[0])]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return texts.describe(pa.StructArray.from_arrays(columns, names), rows=None, salt=salt)


def alike(one: str | tuple[str, ...], other: str | tuple[str, ...]) -> bool:
    return bool(texts.find(described(one).sketches, described(other).sketches)[0] == 0)


@pytest.mark.parametrize(
    "other",
    [
        "the PATIENT was seen on the ward after lunch and had no fever!",
        " The  patient was\tseen on the ward, after lunch, and had no fever. \n",
        "The patient was seen on the ward after lunch and had no fe-ver",
        "\uff34\uff48\uff45 patient was seen on the ward after lunch and had no fever",
        "The patient was\u00a0seen on the ward after lunch and had no fe\u200bver",
    ],
)
def test_spelling_makes_no_difference(other):
    assert described(other).contents == described(LONG).contents


def test_what_carries_meaning_does():
    def differ(one: str, other: str) -> bool:
        return described(one).contents != described(other).contents

    assert differ("1.5 mg", "15 mg")
    assert differ("3/4", "34")
    assert differ("good \U0001f600", "good \U0001f622")
    assert differ("!", "?")
    assert differ("", ".")
    assert not differ("30 days.", "30 days")
    pair = ("one text", "another")
    assert described(pair).contents != described(pair[::-1]).contents
    assert described(("a b", "c")).contents != described(("a", "b c")).contents


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(LONG.replace("lunch", "lnch"), id="left out"),
        pytest.param(LONG.replace("lunch", "luunch"), id="doubled"),
        pytest.param(LONG.replace("lunch", "lumch"), id="replaced"),
        pytest.param(LONG.replace("lunch", "lucnh"), id="swapped"),
        pytest.param(LONG.replace("The", "Te"), id="at the beginning"),
        pytest.param(LONG.replace("fever", "feverr"), id="at the end"),
        pytest.param(LONG.replace("lunch", "LUMCH,"), id="and other spelling"),
    ],
)
def test_one_typing_error_is_recognised(other):
    assert described(other).contents != described(LONG).contents
    assert alike(LONG, other)
    assert alike(other, LONG)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(LONG.replace("lunch", "dinner"), id="another word"),
        pytest.param(LONG.replace("no ", ""), id="a word less"),
        pytest.param("A" + LONG[3:], id="another first word"),
        pytest.param(LONG.replace("ward after lunch", "lunch after ward"), id="other order"),
        pytest.param(LONG.replace("ward", "wrd").replace("had", "hd"), id="two errors"),
        pytest.param(LONG.replace("ward", "wad").replace("had", "hard"), id="moved letter"),
    ],
)
def test_more_than_one_typing_error_is_another_text(other):
    assert not alike(LONG, other)
    assert not alike(other, LONG)


def test_digits_are_no_typing_errors():
    first = "Give 5 mg on day 12 of the treatment, then nothing"
    for other in (first.replace("5", "6"), first.replace("12", "21"), first.replace("12", "1")):
        assert not alike(first, other)
    assert alike(first, first.replace("nothing", "notthing"))


def test_short_texts_are_the_same_or_others():
    short = "thank you so much"
    assert not described(short).telling[0]
    assert not alike(short, short.replace("much", "mch"))
    assert described(short).contents == described("Thank you so much!").contents
    edge = "x" * 15 + " " + "y" * 16  # 32 characters
    assert described(edge, edge[:-1]).telling.tolist() == [True, False]
    assert alike(edge, edge[:-1])  # the longer one counts
    assert not alike(edge[:-1], edge[:-2])


def test_an_error_in_either_text_of_a_pair_is_recognised():
    pair = ("A man is playing the guitar", "Somebody makes music")
    assert alike(pair, (pair[0].replace("guitar", "gitar"), pair[1]))
    assert alike(pair, (pair[0], pair[1].replace("music", "musicc")))
    assert not alike(pair, pair[::-1])
    assert not alike(pair, (pair[0], "Nobody makes music"))


WORDS = st.lists(st.text("abcdefgh", min_size=3, max_size=9), min_size=8, max_size=30)


@given(WORDS, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_any_error_in_one_word_is_recognised(words, seed):
    text = " ".join(words)
    draw = random.Random(seed)
    at = draw.randrange(len(words))
    other = " ".join([*words[:at], with_a_typo(words[at], draw), *words[at + 1 :]])
    if len(text) < 33 or described(other).contents == described(text).contents:
        return
    assert alike(text, other)
    assert alike(other, text)


@given(WORDS, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_errors_in_two_words_are_not(words, seed):
    draw = random.Random(seed)
    first, second = sorted(draw.sample(range(len(words)), 2))
    changed = list(words)
    for at in (first, second):
        changed[at] = with_a_typo(words[at], draw)
    if changed[first] == words[first] or changed[second] == words[second]:
        return
    assert not alike(" ".join(words), " ".join(changed))


@pytest.mark.parametrize("way", SAME_TEXT)
def test_many_texts_are_found_among_many(way):
    """Forms that begin alike, too; fails below once in 10,000 times, if 99 % are recognised."""
    draw = random.Random(4)
    names = ["".join(draw.choices("abcdefghij", k=8)) for _ in range(600)]
    records = [f"Dear colleague, thank you for sending us {one}." for one in names]
    known = described(*records)
    typos = described(*(one.replace("sending", "sendin") for one in records))
    found = texts.find(known.sketches, typos.sketches)
    hits = Share(int((found == np.arange(600)).sum()), 600)
    assert is_at_least(hits, 0.99), hits
    spelled = described(*(SAME_TEXT[way](one, draw) for one in records))
    assert spelled.contents == known.contents
    assert (texts.find(known.sketches, known.sketches) == -1).all()  # the same is not alike


def test_nothing_is_compared_under_another_salt():
    other = described(LONG.replace("lunch", "lnch"), salt=bytes(32))
    assert texts.find(described(LONG).sketches, other.sketches).tolist() == [-1]
    none = described(LONG).sketches[:0]
    assert texts.find(none, other.sketches).tolist() == [-1]
    assert texts.find(other.sketches, none).size == 0
