"""Reports as Markdown. Texts of whatever origin do nothing but show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

from dpal.reports.charts import Chart
from dpal.reports.report import (
    Aside,
    Block,
    Commands,
    Facts,
    Legend,
    Picture,
    Points,
    Report,
    Table,
    pieces,
)

FIGURES = "figures"  # folder of the figures, beside the text


def markdown_of(report: Report) -> str:
    """Writes a report; its figures are files in `FIGURES`."""
    points = [f"{'' if good else '**Mind:** '}{point}" for good, point in report.verdict.points]
    cards = (tuple(map(_text, card)) for card in report.cards)
    parts = [
        f"# {_line(report.title)}",
        _text(f"{report.about}."),
        _text(f"Promised: {report.promise}."),
        f"**{_text(report.verdict.title)}**",
        _list(points),
        "\n".join(f"- **{what}**: {number} ({more})" for number, what, more in cards),
    ]
    for section in report.sections:
        parts += [f"## {_line(section.title)}", *_told(section.blocks, section.title, "###")]
    digests = Facts(tuple((word, f"`{what}`") for word, what in report.digests))
    return _joined([*parts, block_in_markdown(digests)])


def blocks_in_markdown(title: str, blocks: Sequence[Block], pictures: Sequence[str] = ()) -> str:
    """Writes blocks under a title.

    Args:
      title: above all.
      blocks: in reading order; tables under their own titles.
      pictures: files that stand beside the text, shown at its end.
    """
    shown = (f"![{_line(picture)}]({picture})" for picture in pictures)
    return _joined([f"# {_line(title)}", *_told(blocks, title, "##"), *shown])


def _told(blocks: Sequence[Block], title: str, level: str) -> list[str]:
    parts = []
    for block in blocks:
        if isinstance(block, Table) and block.title not in ("", title):
            parts.append(f"{level} {_line(block.title)}")
        parts.append(block_in_markdown(block))
    return parts


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def block_in_markdown(block: Block) -> str:
    """One block of a report."""
    return _WRITTEN[type(block)](block)


def _table(table: Table) -> str:
    """Numbers are aligned to the right."""
    lines = [tuple(map(_line, table.columns))]
    for number, row in enumerate(table.rows):
        lines.append(
            tuple(
                _linked(_line(cell), table.link(number, column)) for column, cell in enumerate(row)
            )
        )
    right = [table.is_number(index) for index in range(len(table.columns))]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    shapes = list(zip(widths, right, strict=True))
    rule = ("-" * (width + 1) + (":" if number else "-") for width, number in shapes)
    head, *rows = ("|".join(["", *map(_cell, line, widths, right), ""]) for line in lines)
    return "\n".join([head, f"|{'|'.join(rule)}|", *rows])


def _linked(shown: str, address: str) -> str:
    return f"[{shown}]({address})" if address and shown else shown


def literal(text: str) -> str:
    """A text of whatever origin in one line: no cell, link, picture or HTML begins in it."""
    for sign, shown in (("\\", "\\\\"), ("|", "\\|"), ("[", "\\["), ("<", "&lt;")):
        text = text.replace(sign, shown)
    return " ".join(text.splitlines())


def _text(text: str) -> str:
    """A paragraph, in which what stands between backticks is left as it is."""
    parts = (
        f"`{part}`" if machine else literal(part).replace("`", "&#96;")
        for machine, part in pieces(text)
    )
    return "".join(parts)


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_text(text)}" for text in texts)


def _cell(text: str, width: int, number: bool) -> str:
    return f" {text:>{width}} " if number else f" {text:<{width}} "


def _fact(word: str, what: str) -> str:
    return f"- **{_text(word)}**: {_text(what)}"


def _command(command: str, does: str) -> str:
    return f"    {' '.join(command.splitlines())}" + (f"\n\n{_text(does)}" if does else "")


def _figure(figure: Chart | Picture) -> str:
    return f"![{_line(figure.alt)}]({FIGURES}/{figure.name}.png)"


_line = literal
_WRITTEN: dict[type, Callable[[Any], str]] = {
    str: _text,
    Aside: lambda aside: _text(aside.text),
    Points: lambda points: _list(points.sentences),
    Facts: lambda facts: "\n".join(
        f"- **{_text(word)}**: {_text(what)}" for word, what in facts.rows
    ),
    Commands: lambda commands: "\n\n".join(starmap(_command, commands.rows)),
    Legend: lambda _: "",  # of bars, which are not shown here
    Table: _table,
    Chart: _figure,
    Picture: _figure,
}
