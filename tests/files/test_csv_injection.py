from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from dpal.files.csv_injection import as_cell, by_cell

STARTS = "=+-@\t\r\n'＝＋－＠"  # noqa: RUF001
texts = st.text(st.one_of(st.sampled_from(STARTS), st.characters(codec="utf-8")), max_size=6)


@given(texts)
def test_no_cell_begins_like_a_formula(text):
    assert not as_cell(text).startswith(tuple(STARTS.replace("'", "")))


@given(st.lists(texts, unique=True))
def test_every_text_comes_back_from_its_cell(wanted):
    """Also among others that are written as its cell is."""
    found = by_cell(wanted)
    assert [found[as_cell(text)] for text in wanted] == wanted
    assert len({as_cell(text) for text in wanted}) == len(wanted)


@given(st.lists(texts, unique=True, min_size=1))
def test_cells_survive_a_file(wanted):
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([as_cell(text)] for text in wanted)
    stream.seek(0)
    found = by_cell(wanted)
    assert [found[row[0]] for row in csv.reader(stream)] == wanted


def test_a_dropped_apostrophe_is_understood_where_nothing_else_is_meant():
    assert by_cell(["=x"])["=x"] == "=x"
    both = by_cell(["=x", "'=x"])
    assert both["'=x"] == "=x"  # as it was written
    assert both["''=x"] == "'=x"
