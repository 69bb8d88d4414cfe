"""Files whose columns became numbers in different ways are not read as one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.same_columns import first_imported, require_same_columns
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError
from dpal.runs.first_settings import look_at
from dpal.runs.open_sources import open_sources


def imported(path: Path, scale: int, *, like: Path | None = None) -> Path:
    """A file made of a table whose weights differ from those of other scales."""
    head = path.stem
    rows = [f"{head}{k},{k * 7 % 100 * scale},{['no', 'yes'][k % 2]}" for k in range(100)]
    source = path.with_suffix(".csv")
    path.unlink(missing_ok=True)
    source.write_text("\n".join(["id,weight,label", *rows]) + "\n", encoding="utf-8")
    earlier = None if like is None else recipe_in(like)
    import_source(source, path, ImportSettings(held_out=0.3), like=earlier)
    return path


@pytest.fixture
def pool(tmp_path) -> Path:
    place = tmp_path / "pool"
    place.mkdir()
    imported(place / "a.parquet", 1)
    return place


def test_a_pool_of_files_whose_numbers_mean_other_values_is_refused(pool, small):
    other = imported(pool / "b.parquet", 50)
    config = small(data={"pool": str(pool), "validation": str(pool)})
    with pytest.raises(DataError, match="--like") as caught:
        open_sources(config)
    assert str(other) in str(caught.value)
    with pytest.raises(DataError, match="--like"):
        look_at(pool)
    imported(other, 50, like=pool / "a.parquet")
    assert len(open_sources(config)[0].paths) == 2


def test_a_validation_file_is_imported_like_its_pool(pool, small, tmp_path):
    validation = imported(tmp_path / "v.parquet", 50)
    config = small(data={"pool": str(pool), "validation": str(validation)})
    with pytest.raises(DataError, match="--like"):
        open_sources(config)
    imported(validation, 50, like=pool / "a.parquet")
    assert open_sources(config)[1].paths == (validation,)


def test_a_file_written_by_hand_may_stand_beside_any(pool):
    table = pa.table({"id": ["x"], "features": [[1.0]], "label": [0], "split": ["train"]})
    pq.write_table(table, pool / "0.parquet")
    paths = [pool / "0.parquet", pool / "a.parquet"]
    require_same_columns(paths)
    assert first_imported(paths) == pool / "a.parquet"
    assert first_imported(paths[:1]) is None
    with pytest.raises(DataError):
        require_same_columns([*paths, imported(pool / "b.parquet", 50)])
