"""Features of a pool's records on disk, so that a large public model reads each record once.

The file is as private as the pool. It holds the features of all of the pool's records, in their
order, whoever is labeled: nothing about a selection can be read off it. A row is found by a digest
of the decoded record, and carries a digest of itself: a record that is not there, or whose row is
not as it was written, is embedded anew. So a file that is old, damaged or gone changes no number,
it costs time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.pool_files import data_file_digest
from dpal.data.readers import raw_batches
from dpal.data.sources import Extractor, Source
from dpal.files.atomic_writes import atomic_write

_KEY = 32  # bytes of a record's digest
_SEAL = 16  # bytes of a row's
_ABOUT = b"dpal.features"


@dataclass(frozen=True)
class StoredFeatures:
    """An extractor that looks records up before it works on them.

    Attributes:
      extractor: what makes features of a record.
      digest: of what it computes; features of another one are not taken.
      file: where features lie, if they do.
    """

    extractor: Extractor
    digest: str
    file: Path

    def __call__(self, records: Tensor) -> Tensor:
        """Features (n, width) of decoded records (n, *shape)."""
        stored = self._stored()
        if stored is None or not len(records):
            return self.extractor(records)
        keys = digests_of_records(records)
        found = stored.features_of(keys)
        unknown = [row for row, features in enumerate(found) if features is None]
        made = iter(self.extractor(records[unknown]) if unknown else ())
        return torch.stack([next(made) if each is None else each for each in found])

    def is_complete(self, source: Source) -> bool:
        """Whether the features of just these files lie there."""
        stored = self._stored()
        return stored is not None and stored.about["files"] == _files(source)

    def write(self, source: Source, on_rows: Callable[[int], object]) -> None:
        """Embeds all records of a source, batch by batch; the file appears whole or not at all.

        Args:
          source: whose extractor this is.
          on_rows: told how many more records were embedded.

        Raises:
          DataError: a record cannot be read.
          StorageError: the disk is full or the folder cannot be written.
        """
        about = {_ABOUT: json.dumps({"extractor": self.digest, "files": _files(source)})}
        rows = self._rows(source, on_rows)
        first = next(rows)
        with (
            atomic_write(self.file) as temporary,
            pa.OSFile(str(temporary), "wb") as stream,
            pa.ipc.new_file(stream, first.schema.with_metadata(about)) as writer,
        ):
            for batch in chain([first], rows):
                writer.write_batch(batch.replace_schema_metadata(about))

    def _rows(self, source: Source, on_rows: Callable[[int], object]) -> Iterator[pa.RecordBatch]:
        for _, records in decoded_ahead(source, raw_batches(source, [source.content.value])):
            features = self.extractor(records).flatten(1).numpy()
            keys = digests_of_records(records)
            values = [row.tobytes() for row in features]
            seals = [_seal(self.digest, *pair) for pair in zip(keys, values, strict=True)]
            yield pa.record_batch(
                {
                    "key": pa.array(keys, pa.binary(_KEY)),
                    "seal": pa.array(seals, pa.binary(_SEAL)),
                    "features": pa.array(values, pa.binary(features.shape[1] * features.itemsize)),
                }
            )
            on_rows(len(keys))

    def _stored(self) -> _Stored | None:
        """The file, where there is one that is of use."""
        try:
            state = self.file.stat()
        except OSError:
            return None
        stored = _opened(self.file, state.st_ino, state.st_mtime_ns, state.st_size)
        return stored if stored is not None and stored.about["extractor"] == self.digest else None


def digests_of_records(records: Tensor) -> list[bytes]:
    """A digest of each decoded record: of its numbers, their type and its shape."""
    kind = f"{records.dtype} {tuple(records.shape[1:])}".encode()
    rows = records.contiguous().numpy()
    return [hashlib.blake2b(kind + row.tobytes(), digest_size=_KEY).digest() for row in rows]


class _Stored:
    """Features in a file that is mapped into memory, found by the digests of their records."""

    def __init__(self, table: pa.Table, about: Mapping[str, Any]) -> None:
        self.about = about
        self._keys, self._seals, self._values = (
            table.column(name) for name in ("key", "seal", "features")
        )
        # A part of each digest finds its row; the whole of it is compared then.
        parts = [_first_words(chunk) for chunk in self._keys.chunks]
        words = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
        self._order = np.argsort(words, kind="stable")
        self._words = words[self._order]

    def features_of(self, keys: list[bytes]) -> list[Tensor | None]:
        """Features (width,) of each record; None where it has none, or they are damaged."""
        words = np.frombuffer(b"".join(key[:8] for key in keys), np.uint64)
        places = np.searchsorted(self._words, words)
        return [self._row(key, place) for key, place in zip(keys, places, strict=True)]

    def _row(self, key: bytes, place: int) -> Tensor | None:
        if place >= len(self._order):
            return None
        row = int(self._order[place])
        value = self._values[row].as_py()
        if self._keys[row].as_py() != key:
            return None
        if self._seals[row].as_py() != _seal(self.about["extractor"], key, value):
            return None
        return torch.from_numpy(np.frombuffer(value, np.float16).copy())


@lru_cache(maxsize=4)
def _opened(path: Path, inode: int, changed: int, size: int) -> _Stored | None:
    """Maps a file in the state that it is in; None where it is none of ours."""
    del inode, changed, size
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        about = json.loads(table.schema.metadata[_ABOUT])
        return _Stored(table, {"extractor": about["extractor"], "files": about["files"]})
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None


def _first_words(chunk: pa.Array) -> NDArray[np.uint64]:
    joined = np.frombuffer(b"".join(chunk.to_pylist()), np.uint64)
    return joined[:: _KEY // 8].copy()


def _seal(digest: str, key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(digest.encode() + key + value, digest_size=_SEAL).digest()


def _files(source: Source) -> list[str]:
    """Digests of the files of a source, in order, as they were read for a plan, or are read now."""
    read = [file.sha256 for file in source.known]
    return read or [data_file_digest(path) for path in source.paths]
