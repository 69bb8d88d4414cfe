"""Folders of pictures: one folder a class, possibly below train and test; or beside a table."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from dpal.data.importing.csv_tables import open_csv
from dpal.data.importing.dicom import DICOM_ENDINGS, GroupReader
from dpal.data.importing.file_names import require_text
from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.json_lines import open_jsonl
from dpal.data.importing.parquet_tables import open_parquet
from dpal.data.importing.parts import TRAIN_WORDS, is_held_out_word
from dpal.data.importing.picture_files import NamedPicture, is_picture, picture_parts
from dpal.data.importing.settings import ImportSettings
from dpal.data.pool_files import visible
from dpal.data.sources import Content
from dpal.errors import DataError

Owner = Callable[[Path], str]  # whose a file is

_RUBBISH = "__MACOSX"  # of archives
_OFFERED = {"PatientID": "would keep the files of a patient together: --group PatientID"}
_TABLES = {".csv": open_csv, ".tsv": open_csv, ".jsonl": open_jsonl}


def open_folder(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder: its Parquet files, its table of labels, or else its folders of classes.

    Raises:
      DataError: no picture is in it, or several tables are.
    """
    if any(visible(place, "*.parquet")) or any(visible(place, "*/*.parquet")):
        return open_parquet(place, settings)
    tables = sorted(
        path for path in visible(place, "*") if path.suffix.lower() in _TABLES and path.is_file()
    )
    if len(tables) == 1:
        return _TABLES[tables[0].suffix.lower()](tables[0], settings)
    if tables:
        names = ", ".join(path.name for path in tables)
        raise DataError(
            f"{place} has several tables ({names}); give the one that names the pictures, and the "
            "folder of these with --pictures"
        )
    folders = _folders(place)
    parts = {path.name.lower() for path in folders}
    has_splits = bool(parts & TRAIN_WORDS) and any(map(is_held_out_word, parts))
    above = folders if has_splits else [place]
    classes = sorted({path.name for part in above for path in _folders(part)})
    first = next(_pictures(above, has_splits, bool(classes)), None)
    if first is None:
        raise DataError(
            f"{place} has no picture in it; give the folder whose folders are the classes"
        )
    dicom = isinstance(first.place, Path) and first.place.suffix.lower() in DICOM_ENDINGS
    owner = _owner(place, settings, dicom=dicom)
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(
            _pictures(above, has_splits, bool(classes), owner),
            settings,
            any_size=settings.whole,
        ),
        # Names of folders are made by whoever sorted the pictures, and show no record.
        classes=settings.classes or tuple(classes),
        has_splits=has_splits,
        left_out=_OFFERED if dicom and settings.group is None else {},
        about=f"pictures in {len(classes)} folders of classes" if classes else "pictures",
    )


def _owner(place: Path, settings: ImportSettings, *, dicom: bool) -> Owner | None:
    """What says whose a picture is; None where nobody asked.

    Raises:
      DataError: pictures say nothing of that, or DICOM knows no such element.
    """
    if settings.group is None:
        return None
    if not dicom:
        raise DataError(
            f"{place} has pictures, which do not say what belongs together; name groups in a "
            f"table beside them: a column of their files, and {settings.group}"
        )
    key = None if settings.groups_in_clear else secrets.token_bytes(32)
    return GroupReader(settings.group, key).group_of


def _folders(place: Path) -> list[Path]:
    """The folders in a folder, but for those that programs make for themselves.

    Raises:
      DataError: one is a link, which may lead anywhere, or its name is no text.
    """
    found = sorted(path for path in place.iterdir() if path.is_dir())
    found = [path for path in found if path.name[0] != "." and path.name != _RUBBISH]
    if any(path.is_symlink() for path in found):
        raise DataError(f"{place} has links to folders, which are not followed; copy those there")
    for path in found:
        require_text(path.name)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """All pictures in a folder and below it, in the order of their names."""
    inner = {path.name for path in _folders(folder)}
    with os.scandir(folder) as entries:  # of a folder of many, names alone are held
        files = {entry.name for entry in entries if is_picture(Path(entry.name))}
    for name in sorted(files | inner):
        path = folder / name
        if name in inner:
            yield from _below(path)
        elif path.is_file():
            yield path


def _pictures(
    above: list[Path], has_splits: bool, labeled: bool, owner: Owner | None = None
) -> Iterator[NamedPicture]:
    """All pictures in the order of their names: by part, by class."""
    for part in above:
        for path in _below(part):
            inside = path.relative_to(part)
            yield NamedPicture(
                id=str(path.relative_to(part.parent) if has_splits else inside),
                place=path,
                label=inside.parts[0] if labeled and len(inside.parts) > 1 else None,
                split=part.name if has_splits else None,
                group=None if owner is None else owner(path),
            )
