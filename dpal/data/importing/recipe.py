"""What an imported file says of itself: how it was made, and which records decided that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dpal.data.importing.column_encoding import TableEncoding
from dpal.data.importing.importers import TEST
from dpal.data.importing.settings import PictureRule
from dpal.data.parquet import read_batches, schema_of
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.labels import Task

if TYPE_CHECKING:  # a served model reads no file
    from dpal.files.stored_objects import Place

# Keys of a file's metadata.
RECIPE = b"dpal.import"  # how it was made, for later files and for predictions
DECIDED_BY = b"dpal.import.decided_by"  # of a table, see `tells_of_held_out`
NAMED = b"dpal.import.named"  # whether its source names records itself
_HELD_OUT, _EARLIER = b"held-out records", b"an earlier import"
_UNKNOWN = b"an earlier import, perhaps by records of this one"
_VERSION = 2  # since 2, 1.0 and 1, True and true are one category


@dataclass(frozen=True, kw_only=True)
class ImportRecipe:
    """How a file was imported, as far as later files must be imported alike.

    Attributes:
      importer: the kind of source.
      content: what a record is.
      task: what a label is.
      classes: names in class order.
      numbered: whether labels of the source are numbers of these classes.
      columns: how those of a table become features; None for other records.
      picture_rule: how pictures were brought to one form.
      texts: names of the fields of texts.
      header: whether the first line of a CSV file named its columns.
      value_range: lowest and highest value of arrays of fractions that are pictures.
    """

    importer: str
    content: Content
    task: Task
    classes: tuple[str, ...]
    numbered: bool = False
    columns: TableEncoding | None = None
    picture_rule: PictureRule = field(default_factory=PictureRule)
    texts: tuple[str, ...] = ()
    header: bool = True
    value_range: tuple[float, float] | None = None

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(
            {
                "version": _VERSION,
                "importer": self.importer,
                "content": self.content.value,
                "task": self.task.value,
                "classes": list(self.classes),
                "numbered": self.numbered,
                "columns": None if self.columns is None else self.columns.to_record(),
                "pictures": asdict(self.picture_rule),
                "texts": list(self.texts),
                "header": self.header,
                "range": self.value_range,
            }
        )


def recipe_from(text: str) -> ImportRecipe:
    """Reads what `ImportRecipe.to_json` wrote.

    Raises:
      DataError: it is of another version, or no recipe.
    """
    try:
        record = json.loads(text)
        if record["version"] > _VERSION:
            raise DataError("the file was imported by a later version of dpal; update dpal")
        if record["version"] < _VERSION:
            raise DataError(
                "the file was imported by an earlier version of dpal, which told other categories "
                "apart; import it again from its source"
            )
        size = record["pictures"].pop("size")
        return ImportRecipe(
            importer=record["importer"],
            content=Content(record["content"]),
            task=Task(record["task"]),
            classes=tuple(record["classes"]),
            numbered=record["numbered"],
            columns=record["columns"] and TableEncoding.from_record(record["columns"]),
            picture_rule=PictureRule(**record["pictures"], size=size and tuple(size)),
            texts=tuple(record["texts"]),
            header=record["header"],
            value_range=record["range"] and tuple(record["range"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "what the file says of its import cannot be read; import it again"
        ) from error


def tells_of_held_out(path: Place) -> bool:
    """Whether a file says, in numbers, what its held-out records were when it was imported.

    The columns of a table become numbers by their smallest and largest value, mean, deviation and
    words among the records that are held out, and these numbers go wherever a model goes. Not so
    of a table that was imported like an earlier one, whose held-out records are not among its own.
    """
    about = schema_of(path).metadata or {}
    return RECIPE in about and b"feature_names" in about and about.get(DECIDED_BY) != _EARLIER


def recipe_in(path: Place) -> ImportRecipe | None:
    """How a file was imported; None where it was not."""
    stored = (schema_of(path).metadata or {}).get(RECIPE)
    return None if stored is None else recipe_from(stored.decode())


@dataclass(frozen=True, kw_only=True, eq=False)
class Deciders:
    """The held-out records by which columns of a table became numbers, as hashes of this process.

    Attributes:
      named: whether their source names records itself; else a name is made of file and row, and
        says nothing of who a record is.
      names, contents: (n,) of each record, sorted; what it is as numbers.
    """

    named: bool
    names: NDArray[np.int64]
    contents: NDArray[np.int64]

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Those of an imported file; None where others decided, or it does not say which ones."""
        schema = schema_of(path)
        about = schema.metadata or {}
        if about.get(DECIDED_BY) != _HELD_OUT or not {"features", "split"} <= set(schema.names):
            return None
        names, contents = list[int](), list[int]()
        for _, batch in read_batches(path, ["id", "features", "split"]):
            ids, parts = (batch.column(name).to_pylist() for name in ("id", "split"))
            hashes = content_hashes(
                np.stack(batch.column("features").to_numpy(zero_copy_only=False))
            )
            held_out = [place for place, part in enumerate(parts) if part == TEST]
            names += [hash(ids[place]) for place in held_out]
            contents += [int(hashes[place]) for place in held_out]
        return cls(
            named=about.get(NAMED) == b"yes",
            names=np.sort(np.array(names, np.int64)),
            contents=np.sort(np.array(contents, np.int64)),
        )


def content_hashes(features: NDArray[np.float32]) -> NDArray[np.int64]:
    """A hash of each of n records by its features, (n, features)."""
    rows = np.ascontiguousarray(features, dtype=np.float32)
    return np.array([hash(row.tobytes()) for row in rows], dtype=np.int64)


def decided_by(*, itself: bool, others: bool) -> bytes:
    """What a table says of who decided: its own records, those of another file, or either."""
    return _HELD_OUT if itself else _EARLIER if others else _UNKNOWN
