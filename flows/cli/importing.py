"""`dpal import`: files of whatever kind become one Parquet file that runs read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.data.importing.settings import ImportSettings, PictureRule, Unsure
from dpal.errors import ConfigError
from dpal.labels import Task
from dpal.reports.report import Table
from flows.cli.terminal import out, print_table

if TYPE_CHECKING:
    from dpal.data.importing.import_report import ImportReport

EXAMPLE = (
    "Example: dpal import patients.csv --to patients.parquet --label diagnosis --split 0.2 "
    "&& dpal init clinic --data patients.parquet"
)
_SHOWN = 20  # classes, and columns, in a table


def import_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file or a folder.")],
    to: Annotated[Path, typer.Option(metavar="POOL.parquet", help="The file to write.")],
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column or field of the label; repeat it, or separate by commas, for several "
            "columns of 0, 1, -1 (uncertain) and blank.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|NAME",
            help="What is held out to measure models: a share, such as 0.2, or the column that "
            "says train or test.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of what belongs together, such as a patient; of DICOM files PatientID.",
        ),
    ] = None,
    group_in_clear: Annotated[
        bool,
        typer.Option(
            "--group-in-clear", help="Write DICOM's PatientID as it is, not as a pseudonym."
        ),
    ] = False,
    ids: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Column of unique names.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Names of classes, in order.")
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Between several labels in one text, such as |.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(metavar="TEXT", help='What says that there is none: "No Finding".')
    ] = None,
    uncertain: Annotated[
        Unsure, typer.Option(help="What -1 among several labels means.")
    ] = Unsure.UNKNOWN,
    blank: Annotated[
        Unsure, typer.Option(help="What a blank among several labels means.")
    ] = Unsure.UNKNOWN,
    text: Annotated[
        str | None, typer.Option(metavar="A[,B]", help="Column or field of a text, or of a pair.")
    ] = None,
    picture: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column that names or holds pictures.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the named pictures are.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="WxH", help="Bring all pictures to this size.")
    ] = None,
    crop: Annotated[bool, typer.Option("--crop", help="Cut the middle, do not stretch.")] = False,
    grey: Annotated[bool, typer.Option("--grey", help="Make all pictures grey.")] = False,
    rgb: Annotated[bool, typer.Option("--rgb", help="Make all pictures RGB.")] = False,
    bits: Annotated[
        int | None, typer.Option(help="Bits that 16-bit pictures really hold, such as 12.")
    ] = None,
    value_range: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="LOW:HIGH", help="Black and white of arrays of fractions, or DICOM."
        ),
    ] = None,
    leave_out: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns that are no features.")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="The first line of a CSV file names columns, or is a record.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="POOL,HELD_OUT",
            help="How many records a published source has, such as 50000,10000, also those that "
            "--part and --only leave out: if it has others, nothing is written.",
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Only this part of the source, in its own word, such as val; --split divides it.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Only rows of a table that have one of these in that column; repeat it for "
            "further columns.",
        ),
    ] = None,
    keep_unlabeled: Annotated[
        bool, typer.Option("--keep-unlabeled", help="Keep records without a label: people label.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="EARLIER.parquet", help="Classes and columns as in an earlier import."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make one Parquet file of a CSV, a folder of pictures, arrays, texts or JSON lines."""
    share, column = _split(split)
    settings = ImportSettings(
        labels=tuple(name for each in label or () for name in _listed(each)),
        separator=separator,
        without=without,
        classes=_listed(classes),
        texts=_listed(text),
        picture=picture,
        pictures=pictures,
        id=ids,
        group=group,
        split=column,
        held_out=share,
        header=header,
        left_out=_listed(leave_out),
        picture_rule=PictureRule(size=_size(size), crop=crop, grey=_grey(grey, rgb), bits=bits),
        uncertain=uncertain,
        blank=blank,
        value_range=_range(value_range),
        keep_unlabeled=keep_unlabeled,
        groups_in_clear=group_in_clear,
        part=part,
        only=tuple(_chosen(text) for text in only or ()),
        expected=_expected(expect),
    )
    report = _imported(source, to, settings, like)
    if as_json:
        typer.echo(json.dumps(asdict(report) | {"file": str(to)}, indent=2))
        return
    _tell(report, to)


def _imported(source: Path, to: Path, settings: ImportSettings, like: Path | None) -> ImportReport:
    from tqdm import tqdm

    from dpal.data.importing.recipe import Deciders, recipe_in
    from dpal.data.importing.write_pool import import_source
    from dpal.data.sources import Role, open_source

    earlier = deciders = None
    if like is not None:
        open_source(like, Role.POOL, label_column="label")  # refuses what is no pool
        earlier = recipe_in(like)
        if earlier is None:
            raise ConfigError(f"{like} was not written by dpal import; import it first")
        deciders = Deciders.of(like)
    with tqdm(desc=f"importing {source.name}", unit="rec", disable=None, leave=False) as bar:
        return import_source(
            source, to, settings, like=earlier, deciders=deciders, on_rows=bar.update
        )


def _tell(report: ImportReport, to: Path) -> None:
    held_out, pool = report.rows.get("test", 0), report.rows.get("train", 0)
    out.print(f"{report.about}: {pool:,} records for the pool, {held_out:,} held out, in {to}",
              markup=False)  # fmt: skip
    for reason, count in report.dropped.items():
        out.print(f"left out: {count:,} {reason}", markup=False)
    for name, why in report.left_out.items():
        out.print(f"left out: column {name or repr(name)}, which {why}", markup=False)
    for name in report.repeated:
        out.print(
            f"note: texts of column {name} repeat; if they name persons, import with --group "
            f"{name}, or whoever has several records is protected less",
            markup=False,
        )
    for what, count in report.noted.items():
        out.print(f"note: {count:,} {what}", markup=False)
    before = "held-out" if report.told else "earlier"
    for what, cells in (
        ("are no numbers count as missing", report.unread),
        (f"are missing are like none before: no {before} record lacks one", report.imputed),
        (f"are beyond those of all {before} records count as the nearest of these", report.clipped),
        (f"are categories that no {before} record has count as (other)", report.other),
    ):
        for name, count in cells.items():
            out.print(f"note: {count:,} cells of column {name} that {what}", markup=False)
    if report.task is Task.MULTI_LABEL:
        out.print("each record has any number of these labels")
    if report.unlabeled:
        out.print(f"{report.unlabeled:,} records have no label; people will be asked for them")
    if report.unknown:
        out.print(f"{report.unknown:,} labels are not known: neither learned nor judged")
    if report.features:
        out.print(
            f"{report.features} features; which categories columns have, and where numbers lie, "
            + (
                "was read off held-out records, so that these cannot be protected"
                if report.told
                else "is as in the earlier import"
            )
        )
        columns = tuple(report.columns.items())
        print_table(Table("Columns", ("column", "read as"), columns[:_SHOWN]))
        if len(columns) > _SHOWN:
            out.print(f"and {len(columns) - _SHOWN} columns more, all of them with --json")
    rows = [
        (name, *(f"{counts[number]:,}" for counts in report.counts.values()))
        for number, name in enumerate(report.classes[:_SHOWN])
    ]
    print_table(Table("Labels", ("class", "pool", "held out"), tuple(rows)))
    if len(report.classes) > _SHOWN:
        out.print(f"and {len(report.classes) - _SHOWN} classes more")
    out.print(f"next: dpal init NAME --data {to}", markup=False)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _split(text: str | None) -> tuple[float | None, str | None]:
    """A share, or the name of a column."""
    if text is None:
        return None, None
    try:
        return float(text), None
    except ValueError:
        return None, text


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise ConfigError(f"--size takes WIDTHxHEIGHT, such as 64x64, not {text!r}")
    return int(width), int(height)


def _expected(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    pool, _, held_out = text.partition(",")
    if not (pool.isdecimal() and held_out.isdecimal()):
        raise ConfigError(f"--expect takes POOL,HELD_OUT, such as 50000,10000, not {text!r}")
    return int(pool), int(held_out)


def _chosen(text: str) -> tuple[str, tuple[str, ...]]:
    """A column, and what a row may have in it."""
    name, _, values = text.partition("=")
    if not name.strip() or not _listed(values):
        raise ConfigError(f"--only takes NAME=A,B, such as ViewPosition=AP,PA, not {text!r}")
    return name.strip(), _listed(values)


def _grey(grey: bool, rgb: bool) -> bool | None:
    if grey and rgb:
        raise ConfigError("--grey and --rgb exclude each other; choose one")
    return True if grey else False if rgb else None


def _range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise ConfigError(f"--range takes LOW:HIGH, such as 0:1, not {text!r}") from error
    return low, high
