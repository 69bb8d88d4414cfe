"""Texts become token ids: checked by hand, record by record, with nothing of a text in errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dpal.data.inspect_rows import inspect
from dpal.data.known_records import scan
from dpal.data.labeled_records import load_labeled
from dpal.data.labeling_state import load_all, write_merged, write_start
from dpal.data.readers import decode, raw_batches, records_of
from dpal.data.sources import Content, Role, Source, open_source
from dpal.data.texts import TextEncoding
from dpal.errors import DataError, ParameterError
from tests.conftest import having, owner_reads
from tests.models.tiny_bert import VOCABULARY, write_folder

PAD, CLS, SEP, UNK = (VOCABULARY.index(f"[{name}]") for name in ("PAD", "CLS", "SEP", "UNK"))
GOOD, BAD, FILM, THE, S = (VOCABULARY.index(word) for word in ("good", "bad", "film", "the", "##s"))
SECRET = "zanzibar"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("bert"))


def column(*texts: str | tuple[str, str] | None) -> pa.StructArray:
    pairs = [one if isinstance(one, tuple) else (one,) for one in texts]
    parts = [pa.array(list(part), pa.string()) for part in zip(*pairs, strict=True)]
    return pa.StructArray.from_arrays(parts, ["text_a", "text_b"][: len(parts)])


def encode(folder: Path, *texts: str | tuple[str, str], max_tokens: int = 8) -> list:
    encoding = TextEncoding(folder=folder, max_tokens=max_tokens)
    return encoding.encode(column(*texts), rows=None).tolist()


def write_pool(path: Path, text_a: list, text_b: list | None = None, **columns) -> Path:
    values = {"id": [f"r-{i:05d}" for i in range(len(text_a))], "text_a": text_a}
    values |= {} if text_b is None else {"text_b": text_b}
    values |= {"label": [i % 2 for i in range(len(text_a))]}
    pq.write_table(pa.table({**values, **columns}), path)
    return path


def source_of(path: Path, folder: Path | None = None, *, max_tokens: int = 8) -> Source:
    encoding = None if folder is None else TextEncoding(folder=folder, max_tokens=max_tokens)
    return open_source(path, Role.POOL, label_column="label", encoding=encoding)


def test_a_text_becomes_the_ids_of_its_words_and_padding(folder):
    assert encode(folder, "The GOOD films", "xyz") == [
        [[CLS, THE, GOOD, FILM, S, SEP, PAD, PAD], [0] * 8],
        [[CLS, UNK, SEP, *[PAD] * 5], [0] * 8],
    ]


def test_a_pair_is_told_apart_by_segments_and_the_longer_text_is_cut(folder):
    assert encode(folder, ("good", "bad"), ("good good good good good", "bad")) == [
        [[CLS, GOOD, SEP, BAD, SEP, PAD, PAD, PAD], [0, 0, 0, 1, 1, 0, 0, 0]],
        [[CLS, GOOD, GOOD, GOOD, GOOD, SEP, BAD, SEP], [0, 0, 0, 0, 0, 0, 1, 1]],
    ]
    assert encode(folder, ("bad", "good good good good good")) == [
        [[CLS, BAD, SEP, GOOD, GOOD, GOOD, GOOD, SEP], [0, 0, 0, 1, 1, 1, 1, 1]],
    ]
    assert encode(folder, "good " * 50) == [[[CLS, *[GOOD] * 6, SEP], [0] * 8]]


def test_a_record_is_the_same_whoever_is_beside_it(folder):
    texts = ["the good films", "bad", "", "a film was not very good . " * 3]
    together = encode(folder, *texts)
    assert together == [encode(folder, text)[0] for text in texts]
    assert together[2][0] == [CLS, SEP, *[PAD] * 6]


def test_the_vocabulary_says_whether_case_matters(tmp_path):
    folder = write_folder(tmp_path)
    assert encode(folder, "Good")[0][0][1] == GOOD
    cased = write_folder(tmp_path / "cased")
    (cased / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert encode(cased, "Good")[0][0][1] == VOCABULARY.index("Good") != GOOD


def test_a_whole_tokenizer_counts_before_a_vocabulary_and_loses_its_own_padding(folder, tmp_path):
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"))
    tokenizer.enable_padding(length=100)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("[UNK]\n")  # would refuse everything
    assert encode(tmp_path, "the good film") == encode(folder, "the good film")


@pytest.mark.parametrize("paired", [False, True])
def test_a_pool_of_texts_is_inspected_and_loaded(folder, tmp_path, paired):
    texts = ["the good film", "bad films", "not bad"] * 500  # more than one batch
    second = ["good", "very bad", "a film"] * 500 if paired else None
    source = source_of(write_pool(tmp_path / "pool.parquet", texts, second), folder)
    assert source.content is Content.TEXT
    assert source.texts == (("text_a", "text_b") if paired else ("text_a",))
    holds = inspect(source)
    assert (holds.rows, holds.input_shape, holds.classes) == (1500, (2, 8), 2)
    inputs, labels = load_all(source)
    assert inputs.shape == (1500, 2, 8)
    assert inputs.dtype == torch.int32
    assert len(labels) == 1500
    expected = encode(folder, *(zip(texts, second, strict=True) if second else texts))
    assert inputs.tolist() == expected


def test_texts_come_as_one_column_in_any_order_of_columns(folder, tmp_path):
    source = source_of(write_pool(tmp_path / "pool.parquet", ["good", "bad"], ["a", "the"]), folder)
    (batch,) = raw_batches(source, ["text", "id"])
    assert batch.table.schema.names == ["text", "id"]
    assert batch.table.column(0).to_pylist()[1] == {"text_a": "bad", "text_b": "the"}


def test_several_files_and_splits_are_read_as_one(folder, tmp_path):
    pool = tmp_path / "pool"
    pool.mkdir()
    split = ["train", "test", "train"]
    for number in range(2):
        path = pool / f"{number}.parquet"
        write_pool(path, ["good", "bad", "film"], id=[f"{number}-{i}" for i in "abc"], split=split)
    source = source_of(pool, folder)
    assert inspect(source).rows == 4
    assert load_all(source)[0].tolist() == encode(folder, "good", "film", "good", "film")


@pytest.mark.parametrize("name", ["text_a", "text_b"])
def test_a_missing_text_is_named_by_row_and_column_and_nothing_is_quoted(folder, tmp_path, name):
    columns: dict[str, list] = {"text_a": [SECRET] * 1200, "text_b": [SECRET] * 1200}
    columns[name][1100] = None
    source = source_of(write_pool(tmp_path / "pool.parquet", **columns), folder)
    with owner_reads(DataError, match=f"row 1100 has no {name}; remove") as caught:
        inspect(source)
    assert SECRET not in str(caught.value)
    with owner_reads(DataError, match=f"row 1100 has no {name}"):
        scan(source, bytes(32))


def test_texts_without_a_tokenizer_say_what_to_set(tmp_path):
    source = source_of(write_pool(tmp_path / "pool.parquet", ["good", SECRET]))
    with owner_reads(DataError, match="holds texts") as caught:
        inspect(source)
    assert SECRET not in str(caught.value)
    with owner_reads(DataError, match="holds texts"):
        decode(Content.TEXT, column("good"), rows=None)


def test_a_folder_without_a_usable_tokenizer_is_refused(folder, tmp_path):
    with owner_reads(DataError, match=r"tokenizer\.json .*vocab\.txt; set"):
        encode(tmp_path, "good")
    (tmp_path / "tokenizer.json").write_text("{}")
    with owner_reads(DataError, match="cannot be read; restore the folder"):
        encode(tmp_path, "good")
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocab.txt").write_text("\n".join([*VOCABULARY[1:], "[PAD]"]))
    with owner_reads(DataError, match=f"pads .*{len(VOCABULARY) - 1}"):
        encode(other, "good")
    with pytest.raises(ParameterError, check=having(parameter="max_tokens")):
        TextEncoding(folder=folder, max_tokens=3)


def test_files_of_other_kinds_are_refused(folder, tmp_path):
    numbers = write_pool(tmp_path / "numbers.parquet", [1, 2])
    with owner_reads(DataError, match=r"column .text_a. of pool file .* holds int64, where str"):
        source_of(numbers, folder)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    write_pool(mixed / "a.parquet", ["good"])
    write_pool(mixed / "b.parquet", ["good"], ["bad"])
    with owner_reads(DataError, match="differ in"):
        source_of(mixed, folder)


def test_a_known_text_is_recognised_by_its_words_whatever_reads_them(folder, tmp_path):
    first = write_pool(tmp_path / "a.parquet", ["good film", "good", "é"], ["bad", "film bad", "1"])
    short, none = source_of(first, folder, max_tokens=4), source_of(first)
    marks = scan(short, bytes(32)).contents
    assert (marks == scan(none, bytes(32)).contents).all()
    assert len(set(marks.tolist())) == 3  # the same words, another pair
    again = write_pool(tmp_path / "b.parquet", ["é", "good film"], ["1", "bad"])
    assert np.isin(scan(source_of(again), bytes(32)).contents, marks).all()


def test_records_of_a_source_are_decoded_with_its_own_tokenizer(folder, tmp_path):
    source = source_of(write_pool(tmp_path / "pool.parquet", ["good"]), folder, max_tokens=5)
    (batch,) = raw_batches(source, [source.content.value])
    found = records_of(source, batch.table.column(0), rows=None)
    assert found.tolist() == [[[CLS, GOOD, SEP, PAD, PAD], [0] * 5]]


@pytest.mark.parametrize("cache_mib", [0, 64])
def test_labeled_texts_are_the_same_from_memory_and_from_disk(folder, tmp_path, cache_mib):
    source = source_of(write_pool(tmp_path / "pool.parquet", ["good", SECRET, "bad"]), folder)
    write_start(source, tmp_path / "start.parquet")
    state = tmp_path / "state.parquet"
    write_merged(tmp_path / "start.parquet", {"r-00000": 0, "r-00002": 1}, 0, state)
    scratch = tmp_path / "scratch"
    with load_labeled(source, state, cache_mib=cache_mib, scratch=scratch) as labeled:
        found = labeled.batch(np.array([1, 0, 1]))[0:3]
        assert scratch.exists() == (cache_mib == 0)
    assert found.tolist() == encode(folder, "bad", "good", "bad")
