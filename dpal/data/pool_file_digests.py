"""What the files of a pool held when a plan was made: learned by reading, recorded, compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import zip_longest

from dpal.data.parquet import reading
from dpal.data.verified_row_groups import KnownFile, RowGroups, chunk, opened
from dpal.errors import DataChanged
from dpal.files.stored_objects import Place


class LearnedFiles:
    """Learns what files hold while somebody reads them in order, from the bytes that were read.

    Attributes:
      files: what they hold, as far as they were read to their end.
    """

    def __init__(self) -> None:
        self.files: list[KnownFile] = []

    def begin(self, file: RowGroups) -> None:
        """Starts on another file."""
        self._file, self._whole, self._state = file, sha256(), file.state
        self._position, self._in_order = 0, True
        self._columns: dict[tuple[int, int], bytes] = {}

    def add(self, group: int, contents: Mapping[int, memoryview]) -> None:
        """Takes in a row group: columns that were read, and from the file all that lies between."""
        metadata = self._file.metadata
        chunks = sorted((*chunk(metadata, group, i), i) for i in range(metadata.num_columns))
        for start, length, leaf in chunks:
            self._in_order &= start >= self._position
            self._pass_over(start)
            own = sha256()
            held = contents.get(leaf)
            for piece in self._file.pieces(start, start + length) if held is None else [held]:
                own.update(piece)
                self._take(piece)
            self._columns[group, leaf] = own.digest()

    def end(self) -> None:
        """Adds what the file holds to the others, once all of its row groups were taken in."""
        self._pass_over(self._file.size)
        if not self._in_order:  # no writer that we know leaves them in another order
            self._whole, self._position, self._in_order = sha256(), 0, True
            self._pass_over(self._file.size)
        self.files.append(
            KnownFile(
                sha256=self._whole.hexdigest(),
                metadata=self._file.metadata,
                columns=self._columns,
                state=self._state if self._state == self._file.state else "",
            )
        )

    def _pass_over(self, end: int) -> None:
        if self._in_order:
            for piece in self._file.pieces(self._position, end):
                self._take(piece)

    def _take(self, piece: memoryview) -> None:
        self._whole.update(piece)
        self._position += len(piece)


def learn_files(places: Sequence[Place]) -> tuple[KnownFile, ...]:
    """Reads files once and decodes nothing, for whoever has to know only what they hold.

    Raises:
      DataError: one of them cannot be read, or is no Parquet file.
    """
    learned = LearnedFiles()
    for place in places:
        with reading(place), opened(place) as file:
            learned.begin(file)
            for group in range(file.metadata.num_row_groups):
                learned.add(group, {})
            learned.end()
    return tuple(learned.files)


def as_recorded(files: Sequence[KnownFile]) -> str:
    """Digests of files and their row groups as a text, for `require_as_recorded`."""
    told = [{"sha256": file.sha256, "row_groups": file.row_groups()} for file in files]
    return json.dumps(told, indent=1) + "\n"


def require_as_recorded(text: str, places: Sequence[Place], files: Sequence[KnownFile]) -> None:
    """Requires that files hold what was recorded of them, and says which row groups do not.

    Args:
      text: from `as_recorded`.
      places: of the files, in order.
      files: what they hold now.

    Raises:
      DataChanged: they do not.
    """
    recorded = json.loads(text)
    if [file.sha256 for file in files] == [before["sha256"] for before in recorded]:
        return
    for place, file, before in zip(places, files, recorded, strict=False):
        if file.sha256 == before["sha256"]:
            continue
        pairs = zip_longest(before["row_groups"], file.row_groups())
        changed = [number for number, (then, now) in enumerate(pairs) if then != now]
        raise DataChanged(str(place), tuple(changed))
    raise DataChanged(", ".join(map(str, places)))  # there are more files now, or fewer
