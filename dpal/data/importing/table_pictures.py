"""Pictures that the rows of a table name or hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from dpal.data.importing.cells import is_missing
from dpal.data.importing.column_roles import Roles
from dpal.data.importing.known_tables import KnownTable
from dpal.data.importing.picture_files import NamedPicture, is_picture
from dpal.data.importing.row_fields import cells_of, ids_of, rows_asked_for, splits_of
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import SourceTable
from dpal.data.importing.table_labels import LabelReader
from dpal.errors import DataError


def named_pictures(
    table: SourceTable,
    settings: ImportSettings,
    roles: Roles,
    labels: LabelReader,
    known: KnownTable | None,
) -> Iterator[NamedPicture]:
    """Pictures that the rows of a table name or hold."""
    base = settings.pictures or (table.place if table.place.is_dir() else table.place.parent)
    finder, done = _PictureFinder(base), 0
    for rows in table.rows():
        cells = rows.cells
        made = ids_of(
            table, cells, roles.id, rows.numbers or range(done + 1, done + cells.num_rows + 1)
        )
        done += cells.num_rows
        said, splits = labels.read(cells), splits_of(cells, roles.split, rows.split)
        groups, asked = cells_of(cells, roles.group), rows_asked_for(cells, settings.only)
        if known is not None and roles.group is None:
            described = cells.select(list(known.columns)).to_pylist()
            groups = [known.group({k: str(v) for k, v in row.items()}) for row in described]
        if known is not None and known.folder is not None:
            for position, row in enumerate(cells.select(list(known.columns)).to_pylist()):
                folder = known.folder({key: str(value) for key, value in row.items()})
                for path in finder.all_in(folder):
                    yield NamedPicture(
                        id=str(path.relative_to(base)),
                        place=path,
                        label=said[position],
                        split=splits[position],
                        group=groups[position],
                        asked=asked[position],
                    )
            continue
        if roles.picture is None:
            continue
        for position, value in enumerate(cells.column(roles.picture).to_pylist()):
            place, name = finder.find(value) if asked[position] else None, made[position]
            if isinstance(value, str) and roles.id is None:
                name = value
            yield NamedPicture(
                id=name,
                place=place,
                label=said[position],
                split=splits[position],
                group=groups[position],
                asked=asked[position],
            )


class _PictureFinder:
    """Finds pictures by what a table calls them: by their path, or by their name alone.

    Where a table names folders, as a publisher had them, a picture is not looked for in another
    folder: who took `a/1.png` for `b/1.png` would give a record the picture of another one.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._by_name: dict[str, Path | None] | None = None
        self._without_folder: dict[Path, PurePath] = {}  # files beside the table, and their cells

    def find(self, value: Any) -> Path | bytes | None:
        """The file of a picture, or its bytes where the table holds them.

        Raises:
          DataError: a file could be the picture of two rows that name different ones.
        """
        if isinstance(value, bytes):
            return value
        if isinstance(value, Mapping):
            return value.get("bytes") or self.find(value.get("path"))
        if is_missing(value):
            return None
        text = str(value).strip()
        named: PurePath = Path(text)
        if "\\" in text and not _is_there(self._base / named):  # as tables from Windows name them
            named = PureWindowsPath(text)
        parts = [part for part in named.parts if part != named.anchor]
        # A table may say from where its publisher had the folder: CheXpert-v1.0/train/...
        for start in range(len(parts)):
            path = self._base.joinpath(*parts[start:])
            if ".." not in parts and _is_there(path):
                if start and start == len(parts) - 1:
                    self._require_one_cell(path, named)
                return path
        if len(parts) > 1:
            return None
        if self._by_name is None:
            self._by_name = {}
            for place in filter(is_picture, self._base.rglob("*")):
                # None: two have that name, and nobody knows which one is meant.
                self._by_name[place.name] = None if place.name in self._by_name else place
        return self._by_name.get(named.name)

    def _require_one_cell(self, path: Path, named: PurePath) -> None:
        other = self._without_folder.setdefault(path, named)
        if other != named:
            raise DataError(
                "rows of the table name {one} and {other}, neither folder is there, and {file} "
                "could be the picture of either; put the pictures into the folders that the table "
                "names",
                one=other,
                other=named,
                file=path,
            )

    def all_in(self, folder: str) -> list[Path]:
        """All pictures of a folder, wherever below the base its path begins."""
        for above in (self._base, self._base / "files"):
            if (above / folder).is_dir():
                return sorted(path for path in (above / folder).iterdir() if is_picture(path))
        return []


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a cell that is longer than names of files may be
        return False
