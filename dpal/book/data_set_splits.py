"""Parts of a public data set: pool, records to choose by, public ones, and those that judge.

Which record is in which part follows from a digest of its id and the seed, so that no setting
moves it. Records that judge are of the test part of the set, the same for every seed, and in no
other part.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image

from dpal.book.book_file import BookSet, Pollution
from dpal.canonical import digest, file_digest
from dpal.data.sources import Content, Extractor
from dpal.errors import DataError
from dpal.features.extractors import build_extractor
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.files.atomic_writes import atomic_write

# How a run knows what pollutes its public records.
_PROVENANCE, _OTHER = "source", "pollution"
POLLUTED = {"provenance_column": _PROVENANCE, "irrelevant": [_OTHER]}
_AT_ONCE = 500  # pictures of which features are made together
_CONTENT = ("image", "features", "text_a", "text_b")


@dataclass(frozen=True, kw_only=True)
class DataParts:
    """Files of a set for one seed.

    Attributes:
      pool, validation, test: Parquet files.
      public: of records that nobody protects; None where none are wanted.
    """

    pool: Path
    validation: Path
    test: Path
    public: Path | None


def make_parts(about: BookSet, files: tuple[Path, ...], seed: int, folder: Path) -> DataParts:
    """Divides a set; what is there already stays.

    Args:
      about: how it is divided.
      files: its train and test file, and the one that pollutes it, if any.
      seed: decides which records of the train file are in which part.
      folder: for the parts.

    Raises:
      DataError: it has too few records, or others of another kind pollute it.
    """
    # By their bytes, as cells are: another file of the same name is divided anew.
    root = folder / digest({**about.division, "files": [file_digest(file) for file in files]})[:12]
    own = root / f"seed-{seed}"
    parts = DataParts(
        pool=own / "pool.parquet",
        validation=own / "validation.parquet",
        test=root / "test.parquet",
        public=own / "public.parquet" if about.public else None,
    )
    if not parts.test.is_file():
        table = _rows_of(files[1], "test")
        kept = by_digest(table["id"].to_pylist(), "test")[: about.judged]
        _write(parts.test, table.take(np.sort(kept)), about)
    wanted = [path for path in (parts.validation, parts.public, parts.pool) if path is not None]
    if all(path.is_file() for path in wanted):
        return parts
    table = _rows_of(files[0], "train")
    order = by_digest(table["id"].to_pylist(), str(seed))
    fixed = about.validation + about.public
    if len(order) <= fixed:
        raise DataError(
            f"{files[0]} has {len(order):,} training records, and the book wants {fixed:,} for "
            "validation and public ones alone; lower validation or public of the set"
        )
    rest = order[fixed:]
    if about.tail is not None:
        rest = rest[_in_tail(table.take(rest), about.tail)]
    for path, rows in (
        (parts.validation, order[: about.validation]),
        (parts.public, order[about.validation : fixed]),
        (parts.pool, rest[: about.pool]),
    ):
        if path is not None and not path.is_file():
            mine = table.take(np.sort(rows))
            if path == parts.public and about.pollution is not None:
                mine = _polluted(mine, about.pollution, files[-1], seed)
            _write(path, mine, about)
    return parts


def _polluted(table: pa.Table, about: Pollution, file: Path, seed: int) -> pa.Table:
    """Public records of which some are others, in an order that only their ids decide."""
    count = round(about.share * table.num_rows)
    others = _rows_of(file, "train")
    if others.num_rows < count:
        raise DataError(
            f"{file} has {others.num_rows:,} training records, and the book wants {count:,} of "
            "them as pollution; lower public of the set, or the share"
        )
    others = others.take(by_digest(others["id"].to_pylist(), str(seed))[:count])
    if not others.schema.equals(table.schema) or _mode(others) != _mode(table):
        raise DataError(
            f"{file} has records of another kind than the set, and cannot pollute it; take one "
            "with the same columns, and pictures of the same colours"
        )
    kept = by_digest(table["id"].to_pylist(), "relevant")[: table.num_rows - count]
    mixed = pa.concat_tables([table.take(kept), others.cast(table.schema)])
    source = ["set"] * len(kept) + [_OTHER] * count
    mixed = mixed.append_column(_PROVENANCE, pa.array(source, pa.string()))
    return mixed.take(by_digest(mixed["id"].to_pylist(), "mixed"))


def _mode(table: pa.Table) -> str | None:
    """Whether pictures are grey or coloured, by the first; None where there are none."""
    if Content.IMAGE.value not in table.schema.names:
        return None
    return _opened(table.column(Content.IMAGE.value)[0].as_py(), None).mode


def by_digest(ids: Sequence[str], purpose: str) -> NDArray[np.int64]:
    """Positions (n,) of records in an order that only their ids and a purpose decide."""
    keys = [hashlib.sha256(f"dpal book/{purpose}/{name}".encode()).digest() for name in ids]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _rows_of(file: Path, split: str) -> pa.Table:
    """Id, content and label of the records of a part, with the metadata of the file."""
    names = pq.read_schema(file).names
    content = [name for name in _CONTENT if name in names]
    more = ["split"] if "split" in names else []
    table = pq.read_table(file, columns=["id", *content, "label", *more])
    if more:
        table = table.filter(pa.compute.equal(table["split"], split)).drop_columns(more)
    return table


def _in_tail(table: pa.Table, tail: float) -> NDArray[np.int64]:
    """Positions of records that a long tail keeps: of class c with chance tail^c."""
    if pa.types.is_list(table.schema.field("label").type):
        raise DataError("a tail thins out classes, and these records have several labels; leave it")
    labels = table["label"].to_numpy()
    coins = np.array([_coin(name) for name in table["id"].to_pylist()])
    return np.flatnonzero(coins < tail**labels)


def _coin(name: str) -> float:
    return int.from_bytes(hashlib.sha256(f"dpal book/tail/{name}".encode()).digest()[:7]) / 2**56


def _write(path: Path, table: pa.Table, about: BookSet) -> None:
    with atomic_write(path) as temporary:
        pq.write_table(_prepared(table, about), temporary, compression="zstd")


def _prepared(table: pa.Table, about: BookSet) -> pa.Table:
    """Pictures at the wanted size, or their features."""
    if Content.IMAGE.value not in table.schema.names:
        return table
    place = table.schema.get_field_index(Content.IMAGE.value)
    pictures = table.column(place).to_pylist()
    if about.features != "none":
        spec = ExtractorSpec(kind=ExtractorKind(about.features))
        extract = build_extractor(spec, Content.IMAGE, texts=0)
        values = _features(pictures, about.side, cast("Extractor", extract))
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        made = table.set_column(place, Content.FEATURES.value, column)
    elif about.side is not None:
        resized = [_as_png(_opened(content, about.side)) for content in pictures]
        made = table.set_column(place, Content.IMAGE.value, pa.array(resized, pa.binary()))
    else:
        return table
    return made.replace_schema_metadata(table.schema.metadata)


def _features(
    pictures: Sequence[bytes], side: int | None, extract: Extractor
) -> NDArray[np.float32]:
    made = []
    for start in range(0, len(pictures), _AT_ONCE):
        pixels = [np.asarray(_opened(content, side)) for content in pictures[start:][:_AT_ONCE]]
        stacked = torch.from_numpy(np.stack(pixels))
        records = stacked[:, None] if stacked.ndim == 3 else stacked.permute(0, 3, 1, 2)
        made.append(extract(records.contiguous()).flatten(1).float().numpy())
    return np.concatenate(made)


def _opened(content: bytes, side: int | None) -> Image.Image:
    opened = Image.open(io.BytesIO(content))
    picture = opened.convert("L" if opened.mode in ("L", "1") else "RGB")
    return picture if side is None else picture.resize((side, side), Image.Resampling.LANCZOS)


def _as_png(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return stream.getvalue()
