"""Files that unpack to more than they should are refused before they are unpacked."""

from __future__ import annotations

from io import BytesIO
from itertools import product
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data import parquet
from dpal.data.file_shards import shard_batches, shards_of
from dpal.data.inspect_rows import inspect
from dpal.data.parquet import BATCH_ROWS, LARGE_BYTES, LARGE_ROWS, read_batches, schema_of
from dpal.data.parquet_page_headers import pages_of
from dpal.data.readers import raw_batches
from dpal.data.sources import Role, open_source
from dpal.data.verified_row_groups import opened
from dpal.errors import DataError
from tests.conftest import owner_reads, write_blobs
from tests.data import bombs
from tests.data.image_pools import picture
from tests.variants import quick_and_slow


def require_refused(path, name: str) -> None:
    make, sentence = bombs.BOMBS[name]
    said, mib = bombs.look(make(path))
    assert sentence in said, said
    assert "\n" not in said
    assert mib < 800  # four rows of 40 MB and what unpacking them takes, at most


@pytest.mark.slow
def test_a_picture_that_asks_for_gigabytes_is_refused_at_once(tmp_path):
    require_refused(tmp_path / "p.parquet", "many large pictures")


@pytest.mark.slow
@pytest.mark.parametrize("name", bombs.BOMBS)
def test_no_file_takes_more_than_some_hundred_megabytes(tmp_path, name):
    """Before, they took 0.7 to 5.5 GB, and two of them all there was."""
    require_refused(tmp_path / "p.parquet", name)


def test_what_a_page_unpacks_to_is_known_before(tmp_path, monkeypatch):
    """The bounds of the slow tests, a thousand times smaller."""
    monkeypatch.setitem(parquet.MOST_BYTES, "bytes", 2**16)
    monkeypatch.setattr(parquet, "MOST_VALUES", 2**14)
    monkeypatch.setattr(parquet, "_MOST_LISTED", 2**16)
    monkeypatch.setattr(parquet, "_MOST_PAGE", 2**20)

    def said(**columns) -> str:
        pq.write_table(pa.table(columns), tmp_path / "p", compression="zstd")
        with pytest.raises(DataError) as refused:
            list(read_batches(tmp_path / "p", list(columns)))
        return str(refused.value)

    unpacked = []
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: unpacked.append(1))
    assert "unpacks to 300,004 bytes for 1 values" in said(image=pa.array([bytes(300_000)] * 5))
    assert "unpacks to 5,005,350 bytes for 100 values" in said(
        image=pa.array([bytes(50_000 + at) for at in range(100)])
    )
    assert "lists of 150,000 numbers in 1 rows" in said(features=pa.array([[0.0] * 150_000]))
    short = [[0.0]] * 999 + [[0.0] * 100_000]
    assert "at most 65,536" in said(features=pa.array(short))
    assert not unpacked


@pytest.mark.slow
def test_large_pictures_are_read_a_few_at_a_time(tmp_path):
    said, mib = bombs.look(bombs.pictures_at_the_bound(tmp_path / "p.parquet"))
    assert said == "(3, 4096, 4096)"
    assert mib < 1200  # all of them would be 3 GB


CODECS = ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]


WRITTEN = list(product([True, False], ["1.0", "2.0"], CODECS))


@pytest.mark.parametrize(
    ("dictionary", "version", "codec"), quick_and_slow([*WRITTEN[::5], *WRITTEN[1::6]], WRITTEN)
)
def test_headers_of_pages_say_what_the_metadata_says(tmp_path, codec, version, dictionary):
    """Values and bytes of all pages of a column add up to those of the file's own summary."""
    rng, rows = np.random.default_rng(0), 5000
    table = pa.table(
        {
            "id": [f"r{at}" for at in range(rows)],
            "text": ["x" * int(n) for n in rng.integers(0, 300, rows)],
            "image": [rng.bytes(int(n)) for n in rng.integers(0, 900, rows)],
            "label": pa.array([None if at % 7 == 0 else [at % 2] * 5 for at in range(rows)]),
            "number": rng.integers(0, 9, rows),
        }
    )
    options = {"compression": codec, "use_dictionary": dictionary, "data_page_version": version}
    pq.write_table(table, tmp_path / "p", row_group_size=2000, data_page_size=5000, **options)
    about = pq.read_metadata(tmp_path / "p")
    with (tmp_path / "p").open("rb") as stream:
        for group in range(about.num_row_groups):
            for leaf in range(about.num_columns):
                column = about.row_group(group).column(leaf)
                pages = list(pages_of(stream, column))
                first = bool(column.has_dictionary_page)
                assert sum(page.values for page in pages[first:]) == column.num_values
                unpacked = sum(page.unpacked for page in pages)
                # The summary counts headers, too; these quote the least and the greatest value.
                assert 0 <= column.total_uncompressed_size - unpacked < 2500 * len(pages)


@pytest.mark.parametrize("stride", quick_and_slow([5], [5, 1]))
def test_headers_that_are_altered_are_a_sentence(tmp_path, stride):
    path = write_blobs(tmp_path / "p.parquet", 500, seed=0)
    whole = path.read_bytes()
    at = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    for value in range(0, 256, stride):
        for place in range(at, at + 12):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                sum(batch.num_rows for _, batch in read_batches(path, ["features"]))
            except DataError as error:
                assert str(path) in str(error) and "\n" not in str(error)


def test_a_header_that_promises_more_than_there_is_ends_at_once():
    """A list of 2^60 numbers of eight bytes, of which none follows."""
    count = bytes([0x80] * 8 + [0x10])
    header = bytes([0x19, 0xF7, *count])
    column = SimpleNamespace(
        has_dictionary_page=False, dictionary_page_offset=None, data_page_offset=0,
        total_compressed_size=len(header), num_values=1, path_in_schema="features",
    )  # fmt: skip
    with pytest.raises(ValueError):
        list(pages_of(BytesIO(header), column))


@pytest.mark.parametrize("dictionary", [True, False])
def test_short_texts_are_read_by_ten_thousands_and_long_ones_a_few_at_a_time(tmp_path, dictionary):
    """Any row may have the longest value of a dictionary, and none is longer."""
    names, longest = [f"r{at}" for at in range(70_000)], "x" * 2**18
    for path, texts in (("short", names), ("long", [*names[:-2], longest, longest])):
        table = pa.table({"id": texts})
        options = {"use_dictionary": dictionary, "dictionary_pagesize_limit": 2**21}
        pq.write_table(table, tmp_path / path, write_statistics=False, **options)
    rows = {}
    for path in ("short", "long"):
        pieces = unpacked(tmp_path / path, ["id"], 0)
        assert sum(piece.num_rows for piece in pieces) == len(names)
        rows[path] = max(piece.num_rows for piece in pieces)
    assert rows["short"] == LARGE_ROWS
    assert (rows["long"] * len(longest) <= parquet._READ_BYTES) is dictionary


def test_a_long_value_counts_wherever_it_is_used_first(tmp_path):
    """The first page has short values, and the longest of the dictionary is only used later."""
    longest = "x" * 2**18
    texts = ["short"] * 3000 + [longest] * 200
    pq.write_table(pa.table({"id": texts}), tmp_path / "p", data_page_size=1)
    [piece, *_] = unpacked(tmp_path / "p", ["id"], 0)
    assert piece.num_rows * len(longest) <= parquet._READ_BYTES


@pytest.mark.parametrize("width", [8, 32, 512])
def test_numbers_are_unpacked_by_what_lies_in_a_cache_and_no_batch_is_put_together(tmp_path, width):
    rows = 3 * LARGE_ROWS if width < 512 else 8 * BATCH_ROWS
    values = pa.array(np.zeros(rows * width, np.float32) + np.arange(rows * width) % 7919)
    lists = pa.FixedSizeListArray.from_arrays(values, width).cast(pa.list_(pa.float32()))
    pq.write_table(pa.table({"features": lists}), tmp_path / "p", use_dictionary=False)
    steps = unpacked(tmp_path / "p", ["features"], 0)
    read = [
        batch for _, batch in read_batches(
            tmp_path / "p", ["features"], weigh=lambda batch: 4 * width, large=True
        )
    ]  # fmt: skip
    assert [batch.num_rows for batch in read] == [step.num_rows for step in steps]
    assert LARGE_BYTES // 2 <= read[0].nbytes <= 2 * LARGE_BYTES


def unpacked(path, columns: list[str], group: int) -> list[pa.RecordBatch]:
    """A row group in the steps in which it is unpacked."""
    with opened(path) as file:
        return list(parquet._unpacked(path, file, columns, [group], None, large=True))


@pytest.mark.slow
def test_rows_come_in_the_same_batches_however_they_are_unpacked(tmp_path, monkeypatch):
    """In small steps, from shards, or all at once: the rows of a batch are the same."""
    content = [picture(at % 5) for at in range(2500)]
    table = {"id": [f"r{at}" for at in range(2500)], "image": content}
    pq.write_table(pa.table(table), tmp_path / "p.parquet", row_group_size=700)
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")

    def seen() -> list[tuple[int, list[str]]]:
        batches = raw_batches(source, ["id", "image"])
        return [(one.first_row, one.table.column(0).to_pylist()) for one in batches]

    def in_shards() -> list[tuple[int, list[str]]]:
        return [
            (one.first_row, one.table.column(0).to_pylist())
            for shard in shards_of(source, 3)
            for one in shard_batches(source, shard, ["id", "image"])
        ]

    at_once = seen()
    assert [len(ids) for _, ids in at_once] == [1024, 1024, 452] and in_shards() == at_once
    monkeypatch.setattr(parquet, "_READ_BYTES", 5000)
    assert seen() == in_shards() == at_once
    monkeypatch.setattr(parquet, "BATCH_BYTES", 100 * 64)  # 64 bytes are 8 x 8 pixels
    fewer = seen()
    assert {len(ids) for _, ids in fewer[:-1]} <= {64, 52}
    assert [name for _, ids in fewer for name in ids] == table["id"]
    assert in_shards() == fewer
    assert all(first % 64 == 0 for first, _ in fewer)


def test_how_batches_are_cut_does_not_depend_on_a_record(tmp_path, monkeypatch):
    """With whom a record is scored would tell of the other: only the common shape decides."""
    monkeypatch.setattr(parquet, "BATCH_BYTES", 100 * 64)
    monkeypatch.setattr(parquet, "_READ_BYTES", 5000)
    cuts = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        # Files of very different sizes, all of 8 x 8 pixels.
        content = [picture(0) + bytes(int(n)) for n in rng.integers(0, 3000, 1500)]
        table = pa.table({"id": [f"r{at}" for at in range(1500)], "image": content})
        pq.write_table(table, tmp_path / "p.parquet")
        source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
        cuts.append([one.table.num_rows for one in raw_batches(source, ["image"])])
    assert cuts[0] == cuts[1] == cuts[2]


def test_messages_name_rows_of_the_file_whatever_split_leaves_out(tmp_path):
    rows = BATCH_ROWS + 200
    content = [picture(1)] * rows
    content[1100] = b"no image"
    split = ["test" if at % 3 else "train" for at in range(rows)]
    split[1100] = "train"
    table = {"id": [f"r{at}" for at in range(rows)], "image": content, "split": split}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
    positions, numbers = [], []
    for batch in raw_batches(source, ["id"]):
        positions += batch.rows.tolist()
        numbers += batch.numbers.numbers.tolist()
    wanted = [at for at in range(rows) if split[at] == "train"]
    assert numbers == wanted and positions == list(range(len(wanted)))

    with owner_reads(DataError, match=r"p\.parquet \(.*row 0\): row 1100"):
        inspect(source)


def test_a_column_needs_a_name_of_its_own(tmp_path):
    table = pa.table([["a"], ["train"], ["test"]], names=["id", "split", "split"])
    pq.write_table(table, tmp_path / "p.parquet")
    with owner_reads(DataError, match="2 columns named 'split'"):
        schema_of(tmp_path / "p.parquet")


def test_a_text_that_is_none_is_named_by_its_row(tmp_path):
    """What an editor of another encoding, or a lone surrogate, leaves behind."""
    for wrong in (b"\xff\xfe", "\ud800".encode(errors="surrogatepass")):
        column = pa.array([b"a", wrong, b"c"]).view(pa.string())
        table = {"id": column, "features": [[1.0]] * 3}
        pq.write_table(pa.table(table), tmp_path / "p.parquet")
        source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
        with owner_reads(DataError, match="row 1 .*'id' .*UTF-8"):
            list(raw_batches(source, ["id"]))
