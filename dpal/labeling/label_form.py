"""A form with one choice for each record of a tiny query, and how its answers are read."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.data.sources import Content, Source
from dpal.errors import LabelError
from dpal.labeling.label_studio_questions import ANSWER, Question
from dpal.labeling.record_display import pictures_of, shown_lines, texts_of
from dpal.labels import Label, Task


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a page shows.

    Attributes:
      schema: of the answers, as JSON schema.
      description: the records, in Markdown.
    """

    schema: dict[str, Any]
    description: str


def make_form(
    question: Question,
    source: Source,
    ids: Sequence[str],
    suggested: Mapping[str, Label] | None = None,
) -> Form:
    """Makes the form for a query, its records numbered in the query's order.

    Args:
      question: that is asked about each record.
      source: the pool.
      ids: of the query.
      suggested: labels that are filled in beforehand, by record.
    """
    filled = {name: question.choices_of(label) for name, label in (suggested or {}).items()}
    multi = question.task is Task.MULTI_LABEL
    choice = {"type": "string", "enum": [*question.choices, *([question.none] if multi else [])]}
    fields = {
        _field(number): {
            "title": f"Record {number}",
            **(
                {"type": "array", "items": choice, "minItems": 1, "uniqueItems": True}
                if multi
                else choice
            ),
            "position": number - 1,
            **({"default": filled[name] if multi else filled[name][0]} if name in filled else {}),
        }
        for number, name in enumerate(ids, start=1)
    }
    return Form(
        schema={
            "type": "object",
            "title": "Labels",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        },
        description="\n\n".join(
            f"**Record {number}**\n\n{record}"
            for number, record in enumerate(_shown(source, ids), start=1)
        ),
    )


def read_form(
    question: Question, values: Mapping[str, Any], ids: Sequence[str]
) -> dict[str, Label]:
    """Reads the answers to a form.

    Raises:
      LabelError: an answer is missing or contradicts itself. Nothing was merged.
    """
    labels: dict[str, Label] = {}
    for number, name in enumerate(ids, start=1):
        value = values.get(_field(number), [])
        choices = [value] if isinstance(value, str) else value
        label = question.read([{"from_name": ANSWER, "value": {"choices": choices}}])
        if label is None:
            # Which one is not said: records of the form are the selected ones, in their order.
            raise LabelError(
                "a record of the form has no valid answer; fill the form in again, nothing was "
                "merged"
            )
        labels[name] = label
    return labels


def _field(number: int) -> str:
    return f"record_{number}"


def _shown(source: Source, ids: Sequence[str]) -> list[str]:
    """Each record in Markdown, where texts are shown as they are."""
    if source.content is Content.IMAGE:
        pictures = dict(pictures_of(source, ids))
        codes = (base64.b64encode(pictures[name]).decode("ascii") for name in ids)
        return [f"![](data:image/png;base64,{code})" for code in codes]
    if source.content is Content.TEXT:
        texts = texts_of(source, ids)
        return ["\n\n".join(map(_literal, texts[name])) for name in ids]
    lines = shown_lines(source, ids)
    return [_literal(lines.get(name) or name) for name in ids]


def _literal(text: str) -> str:
    """An indented block: nothing in it is Markdown or HTML."""
    return "\n".join(f"    {line}" for line in text.splitlines())
