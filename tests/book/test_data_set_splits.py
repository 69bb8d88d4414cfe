"""Parts of a set: nobody is in two, and nothing of the test part is in another."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.book.book_file import BookSet
from dpal.book.data_set_splits import make_parts
from dpal.errors import DataError
from tests.conftest import write_blobs
from tests.data.image_pools import images

FILES = (Path("pool.parquet"), Path("validation.parquet"))


def about(**changes):
    values = {"train": "pool.parquet", "pool": 300, "validation": 100, "judged": 150,
              "is_what": "blobs"}  # fmt: skip
    return BookSet(**{**values, **changes})


def ids(path):
    return set(pq.read_table(path)["id"].to_pylist())


def test_parts_are_apart_and_as_large_as_wanted(workplace):
    parts = make_parts(about(public=50), FILES, 0, Path("parts"))
    pool, validation, public, test = map(ids, (parts.pool, parts.validation, parts.public,
                                               parts.test))  # fmt: skip
    assert [len(part) for part in (pool, validation, public, test)] == [300, 100, 50, 150]
    assert len(pool | validation | public) == 450
    assert all(name.startswith("v-") for name in test)


def test_a_seed_draws_other_records_and_the_same_test(workplace):
    first, second = (make_parts(about(), FILES, seed, Path("parts")) for seed in (0, 1))
    assert ids(first.pool) != ids(second.pool)
    assert first.test == second.test
    again = make_parts(about(), FILES, 0, Path("elsewhere"))
    assert ids(again.pool) == ids(first.pool)


def test_one_file_with_a_split_serves_both(workplace):
    table = pq.read_table("pool.parquet")
    split = ["test" if row % 3 == 0 else "train" for row in range(table.num_rows)]
    pq.write_table(table.append_column("split", pa.array(split)), "both.parquet")
    parts = make_parts(about(), (Path("both.parquet"),) * 2, 0, Path("parts"))
    told = dict(zip(table["id"].to_pylist(), split, strict=True))
    assert {told[name] for name in ids(parts.test)} == {"test"}
    assert {told[name] for name in ids(parts.pool) | ids(parts.validation)} == {"train"}


def test_a_tail_thins_out_late_classes_of_the_pool_alone(workplace):
    write_blobs(workplace / "many.parquet", 6000, seed=5)
    files = (Path("many.parquet"), FILES[1])
    parts = make_parts(about(pool=6000, validation=1000, tail=0.5), files, 0, Path("parts"))
    counts = pq.read_table(parts.pool)["label"].to_numpy()
    kept = [(counts == label).sum() for label in range(3)]
    # Of about 1,667 records each; the chance that one of these fails is below 1e-6.
    assert 1450 < kept[0] < 1900
    assert 680 < kept[1] < 990
    assert 310 < kept[2] < 530
    assert abs((pq.read_table(parts.validation)["label"].to_numpy() == 2).mean() - 1 / 3) < 0.1


def test_too_few_records_are_refused(workplace):
    with pytest.raises(DataError, match="600"):
        make_parts(about(validation=600), FILES, 0, Path("parts"))


def test_features_are_made_once_of_pictures(workplace):
    images(workplace / "pictures.parquet", 40)
    files = (Path("pictures.parquet"),) * 2
    wanted = about(pool=20, validation=10, judged=5, side=12, features="scattering")
    parts = make_parts(wanted, files, 0, Path("parts"))
    table = pq.read_table(parts.pool)
    assert "image" not in table.schema.names
    assert table.schema.field("features").type.list_size == 81 * 3 * 3
    before = parts.pool.stat().st_mtime_ns
    assert make_parts(wanted, files, 0, Path("parts")).pool.stat().st_mtime_ns == before


def test_another_file_of_the_same_name_is_divided_anew(workplace):
    before = make_parts(about(), FILES, 0, Path("parts"))
    held = ids(before.pool)
    write_blobs(workplace / "pool.parquet", 600, seed=7, prefix="other")
    after = make_parts(about(), FILES, 0, Path("parts"))
    assert not ids(after.pool) & held
    assert ids(before.pool) == held, "what was made of the first file stays"


def test_a_share_of_the_public_records_is_of_something_else(workplace):
    write_blobs(workplace / "others.parquet", 90, seed=7, prefix="o")
    pollution = {"file": "others.parquet", "share": 0.2}
    polluted = make_parts(about(public=50, pollution=pollution),
                          (*FILES, Path("others.parquet")), 0, Path("parts"))  # fmt: skip
    clean = make_parts(about(public=50), FILES, 0, Path("parts"))
    for part in ("pool", "validation", "test"):
        assert ids(getattr(polluted, part)) == ids(getattr(clean, part))
    table = pq.read_table(polluted.public).to_pandas()
    others = table.id.str.startswith("o-")
    assert (len(table), others.sum()) == (50, 10)
    assert (table.source == "pollution").tolist() == others.tolist()
    assert set(table.id[~others]) < ids(clean.public)
    assert not others[:10].all()  # they lie among the others
    assert not others[-10:].all()


@pytest.mark.parametrize("change", ["few", "kind"])
def test_what_cannot_pollute_is_refused(workplace, change):
    write_blobs(workplace / "others.parquet", 9 if change == "few" else 90, seed=7, prefix="o")
    if change == "kind":
        others = pq.read_table("others.parquet")
        floats = pa.array(map(float, others["label"].to_pylist()))
        place = others.schema.get_field_index("label")
        pq.write_table(others.set_column(place, "label", floats), "others.parquet")
    pollution = {"file": "others.parquet", "share": 0.2}
    with pytest.raises(DataError):
        make_parts(about(public=50, pollution=pollution), (*FILES, Path("others.parquet")), 0,
                   Path("parts"))  # fmt: skip


def test_grey_pictures_do_not_pollute_coloured_ones(workplace):
    images(workplace / "grey.parquet", 60)
    coloured = pq.read_table("grey.parquet")
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG")
    place = coloured.schema.get_field_index("image")
    content = pa.array([stream.getvalue()] * coloured.num_rows, pa.binary())
    pq.write_table(coloured.set_column(place, "image", content), "coloured.parquet")
    few = {"pool": 10, "validation": 5, "public": 10, "judged": 5}
    files = (Path("grey.parquet"), Path("grey.parquet"), Path("coloured.parquet"))
    with pytest.raises(DataError):
        make_parts(about(**few, pollution={"file": "coloured.parquet", "share": 0.2}), files, 0,
                   Path("parts"))  # fmt: skip


def test_pollution_is_of_public_records():
    with pytest.raises(ValueError, match="pollution"):
        about(pollution={"file": "others.parquet", "share": 0.2})
