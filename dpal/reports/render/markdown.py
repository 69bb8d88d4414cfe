"""Reports as Markdown. Texts of whatever origin do nothing but show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

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


@singledispatch
def block_in_markdown(block: Block) -> str:
    """One block of a report."""
    raise TypeError(type(block).__name__)


@block_in_markdown.register
def _(block: str) -> str:
    return _text(block)


@block_in_markdown.register
def _(block: Aside) -> str:
    return _text(block.text)


@block_in_markdown.register
def _(block: Points) -> str:
    return _list(block.sentences)


@block_in_markdown.register
def _(block: Facts) -> str:
    return "\n".join(f"- **{_text(word)}**: {_text(what)}" for word, what in block.rows)


@block_in_markdown.register
def _(block: Commands) -> str:
    return "\n\n".join(
        f"    {' '.join(command.splitlines())}" + (f"\n\n{_text(does)}" if does else "")
        for command, does in block.rows
    )


@block_in_markdown.register
def _(_: Legend) -> str:
    return ""  # of bars, which are not shown here


@block_in_markdown.register(Chart)
@block_in_markdown.register(Picture)
def _(block: Chart | Picture) -> str:
    return f"![{_line(block.alt)}]({FIGURES}/{block.name}.png)"


@block_in_markdown.register
def _(block: Table) -> str:
    """Numbers are aligned to the right."""
    lines = [tuple(map(_line, row)) for row in (block.columns, *block.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    right = [block.is_number(at) for at in range(len(widths))]

    def laid_out(cells: Sequence[str]) -> str:
        padded = (
            f" {cell:>{width}} " if number else f" {cell:<{width}} "
            for cell, width, number in zip(cells, widths, right, strict=True)
        )
        return "|" + "|".join(padded) + "|"

    rule = (
        "-" * (width + 1) + (":" if number else "-")
        for width, number in zip(widths, right, strict=True)
    )
    head, *rows = map(laid_out, lines)
    return "\n".join([head, "|" + "|".join(rule) + "|", *rows])


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


_line = literal
