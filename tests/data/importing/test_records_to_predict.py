"""Records to predict are read like the model's own, and refused with what `dpal predict` has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.importing.import_report import ImportReport
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError

N = 120
RNG = np.random.default_rng(11)


def learned(place: Path, **settings: Any) -> Path:
    """The pool of a model, made of a source."""
    pool = place.parent / "model.parquet"
    import_source(place, pool, ImportSettings(held_out=0.4, **settings))
    return pool


def to_predict(place: Path, pool: Path, **settings: Any) -> ImportReport:
    """What is read of new records, as `dpal predict` reads them."""
    to = pool.with_name("records.parquet")
    return import_source(place, to, ImportSettings(whole=True, **settings), like=recipe_in(pool))


def table(place: Path, **columns: Any) -> Path:
    pd.DataFrame(columns).to_csv(place, index=False)
    return place


def pictures(folder: Path, *, dtype: type = np.uint8) -> Path:
    for k in range(N):
        place = folder / "ab"[k % 2] / f"{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 200, (4, 4)).astype(dtype)).save(place)
    return folder


NAMES = [f"p{k}" for k in range(N)]
AGES = [20 + k / 7 for k in range(N)]
NOTES = [f"a note, the {k}th" for k in range(N)]
LABELS = ["no", "yes"] * (N // 2)


def lacks_its_text(folder: Path) -> tuple[Path, Path]:
    own = table(folder / "a.csv", id=NAMES, note=NOTES, label=LABELS)
    return table(folder / "b.csv", id=NAMES, notes=NOTES), learned(own, texts=("note",))


def lacks_its_column(folder: Path) -> tuple[Path, Path]:
    own = table(folder / "a.csv", id=NAMES, age=AGES, label=LABELS)
    return table(folder / "b.csv", id=NAMES, years=AGES), learned(own)


def lacks_its_field(folder: Path) -> tuple[Path, Path]:
    place, pool = lacks_its_column(folder)
    pd.read_csv(place).to_json(folder / "b.jsonl", orient="records", lines=True)
    return folder / "b.jsonl", pool


def names_no_picture(folder: Path) -> tuple[Path, Path]:
    return table(folder / "b.csv", id=NAMES, label=LABELS), learned(pictures(folder / "p"))


def calls_pictures_otherwise(folder: Path) -> tuple[Path, Path]:
    pool = learned(pictures(folder / "p"))
    return table(folder / "p" / "b.csv", id=NAMES, scan=[f"a/{k}.png" for k in range(N)]), pool


def has_several_tables(folder: Path) -> tuple[Path, Path]:
    pool = learned(pictures(folder / "p"))
    for name in "xy":
        table(folder / "p" / f"{name}.csv", image=[f"a/{k}.png" for k in range(N)])
    return folder / "p", pool


def has_pictures_of_two_depths(folder: Path) -> tuple[Path, Path]:
    pool = learned(pictures(folder / "p"))
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(folder / "p" / "b" / "z.png")
    return folder / "p", pool


def has_fractions(folder: Path) -> tuple[Path, Path]:
    pool = learned(pictures(folder / "p"))
    np.savez(folder / "b.npz", x=RNG.random((N, 4, 4)))
    return folder / "b.npz", pool


def has_many_levels(folder: Path) -> tuple[Path, Path]:
    pool = learned(pictures(folder / "p"))
    np.savez(folder / "b.npz", x=RNG.integers(0, 4096, (N, 4, 4)).astype(np.int32))
    return folder / "b.npz", pool


def is_a_table_for_lists(folder: Path) -> tuple[Path, Path]:
    np.savez(folder / "a.npz", x=RNG.random((N, 2)), y=np.arange(N) % 2)
    return table(folder / "b.csv", id=NAMES, age=AGES), learned(folder / "a.npz")


def is_another_pool(folder: Path) -> tuple[Path, Path]:
    own = learned(table(folder / "a.csv", id=NAMES, age=AGES, label=LABELS))
    (folder / "pools").mkdir()
    return own.rename(folder / "pools" / "a.parquet").parent, learned(pictures(folder / "p"))


def has_no_record(folder: Path) -> tuple[Path, Path]:
    _, pool = lacks_its_text(folder)
    return table(folder / "c.csv", id=NAMES, note=[""] * N), pool


REFUSED = [
    lacks_its_text, lacks_its_column, lacks_its_field, names_no_picture, calls_pictures_otherwise,
    has_several_tables, has_pictures_of_two_depths, has_fractions, has_many_levels,
    is_a_table_for_lists, is_another_pool, has_no_record,
]  # fmt: skip


@pytest.mark.parametrize("made", REFUSED, ids=lambda made: made.__name__)
def test_a_refusal_names_no_option_that_predictions_do_not_have(tmp_path: Path, made: Any) -> None:
    """But for those of an import, where it says so."""
    place, pool = made(tmp_path)
    with pytest.raises(DataError) as refused:
        to_predict(place, pool)
    said = refused.value.for_owner()
    named = set(re.findall(r"--[a-z-]+", said))
    assert "dpal import" in said or named <= {"--id", "--pictures"}, said
    assert "earlier" not in said and "imported" not in said, said


def test_a_text_that_is_called_like_labels_is_a_text(tmp_path: Path) -> None:
    own = table(tmp_path / "a.csv", id=NAMES, target=NOTES, ill=LABELS)
    pool = learned(own, texts=("target",), labels=("ill",))
    new = table(tmp_path / "b.csv", id=NAMES, target=NOTES)
    to_predict(new, pool)
    assert pq.read_table(tmp_path / "records.parquet")["text_a"].to_pylist() == NOTES


def test_names_that_are_called_like_labels_are_names(tmp_path: Path) -> None:
    pool = learned(table(tmp_path / "a.csv", id=NAMES, age=AGES, label=LABELS))
    to_predict(table(tmp_path / "b.csv", y=NAMES, age=AGES), pool, id="y")
    assert pq.read_table(tmp_path / "records.parquet")["id"].to_pylist() == NAMES
