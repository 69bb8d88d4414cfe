"""What a person sees of a record; and what is said of one that cannot be shown."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from dpal.labeling.record_display import pictures_of, texts_of

NAMES = [f"r{row}" for row in range(40)]
DAMAGED = 31


def source_of(tmp_path, **columns):
    pq.write_table(pa.table({"id": NAMES, **columns}), tmp_path / "pool.parquet")
    return open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")


def png(side):
    content = io.BytesIO()
    Image.fromarray(np.zeros((side, 2), np.uint8)).save(content, format="PNG")
    return content.getvalue()


def with_texts(tmp_path):
    texts = [None if row == DAMAGED else "a text" for row in range(len(NAMES))]
    source = source_of(tmp_path, text_a=pa.array(texts, pa.string()))
    return lambda ids: texts_of(source, ids)


def with_pictures(tmp_path):
    images = [b"no picture" if row == DAMAGED else png(2) for row in range(len(NAMES))]
    source = source_of(tmp_path, image=pa.array(images, pa.binary()))
    return lambda ids: list(pictures_of(source, ids))


@pytest.mark.parametrize("made", [with_texts, with_pictures])
@pytest.mark.parametrize("before", [0, 2, 9])
def test_a_message_says_nothing_of_who_else_was_selected(tmp_path, made, before):
    """Of a damaged record its owner reads the row of the file, whoever was selected before it."""
    with pytest.raises(DataError) as refused:
        made(tmp_path)([*NAMES[:before], NAMES[DAMAGED], *NAMES[35:]])
    assert "row [...] h" in str(refused.value)
    assert f"row {DAMAGED} h" in refused.value.for_owner()


def test_pictures_of_several_sizes_are_shown(tmp_path):
    source = source_of(tmp_path, image=pa.array([png(1 + row) for row in range(40)], pa.binary()))
    shown = {name: Image.open(io.BytesIO(one)).size for name, one in pictures_of(source, NAMES)}
    assert shown == {name: (2, 1 + row) for row, name in enumerate(NAMES)}
