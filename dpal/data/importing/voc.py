"""Pascal VOC: a file of XML for each picture, which lists the objects in it."""

from __future__ import annotations

import xml.parsers.expat as expat
from collections.abc import Iterator
from pathlib import Path

from dpal.data.importing.importers import OpenedSource, Several
from dpal.data.importing.picture_files import ENDINGS, NamedPicture, picture_parts
from dpal.data.importing.settings import ImportSettings
from dpal.data.parquet import reading
from dpal.data.sources import Content
from dpal.errors import DataError

_MOST_BYTES = 2**22  # of one annotation


def open_voc(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder with Annotations and JPEGImages, and ImageSets/Main where it has them.

    A picture has each label of which it has an object; one that is only marked as difficult is not
    known, as the challenge does not judge it.

    Raises:
      DataError: an annotation cannot be read.
    """
    parts = _parts(place)
    return OpenedSource(
        content=Content.IMAGE,
        parts=lambda: picture_parts(_pictures(place, parts), settings, any_size=settings.whole),
        classes=settings.classes,
        has_splits=bool(parts),
        about="pictures with objects (Pascal VOC)",
    )


def _parts(place: Path) -> dict[str, str]:
    """Parts by the names of pictures, where both a train part and another one are listed."""
    found = dict[str, str]()
    for part in ("train", "val", "test"):
        listed = place / "ImageSets" / "Main" / f"{part}.txt"
        if listed.is_file():
            with reading(listed):
                found |= dict.fromkeys(listed.read_text(encoding="utf-8").split(), part)
    return found if len(set(found.values())) > 1 else {}


def _pictures(place: Path, parts: dict[str, str]) -> Iterator[NamedPicture]:
    annotations = (place / "Annotations").glob("*.xml")
    for annotation in sorted(each for each in annotations if not each.name.startswith(".")):
        sure, difficult = _objects(annotation)
        name = annotation.stem
        files = (place / "JPEGImages" / f"{name}{ending}" for ending in ENDINGS)
        yield NamedPicture(
            id=name,
            place=next((path for path in files if path.is_file()), None),
            label=Several(tuple(sorted(sure)), tuple(sorted(difficult - sure))),
            split=parts.get(name),
        )


def _objects(annotation: Path) -> tuple[set[str], set[str]]:
    """Names of the objects in a picture, and of those that are marked as difficult.

    Raises:
      DataError: it is no XML. Entities are not looked up: a small file could grow to gigabytes.
    """
    sure, difficult = set[str](), set[str]()
    path, root = list[str](), list[str]()
    values: dict[str, str] = {}

    def start(name: str, attributes: dict[str, str]) -> None:
        if not path:
            root.append(name)
        path.append(name)
        if path[-2:] == ["annotation", "object"]:
            values.clear()

    def text(content: str) -> None:
        if len(path) == 3 and path[1] == "object":
            values[path[2]] = values.get(path[2], "") + content

    def end(name: str) -> None:
        if path == ["annotation", "object"] and values.get("name", "").strip():
            marked = values.get("difficult", "0").strip() == "1"
            (difficult if marked else sure).add(values["name"].strip())
        path.pop()

    def refuse(*arguments: object) -> None:
        raise DataError(
            "{annotation} declares entities, which no annotation needs; take them out",
            annotation=annotation,
        )

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, refuse
    try:
        if annotation.stat().st_size > _MOST_BYTES:
            raise DataError(
                "{annotation} is larger than any annotation; restore it", annotation=annotation
            )
        parser.Parse(annotation.read_bytes(), True)
    except (expat.ExpatError, LookupError, ValueError, OSError) as error:  # or of no known encoding
        raise DataError(
            "{annotation} is no readable XML; restore it", annotation=annotation
        ) from error
    if root != ["annotation"]:
        raise DataError(
            "{annotation} is XML of something else than an annotation; restore it",
            annotation=annotation,
        )
    return sure, difficult
