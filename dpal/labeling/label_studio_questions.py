"""What annotators are asked in Label Studio, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from string import ascii_lowercase, digits
from typing import Any
from xml.sax.saxutils import quoteattr

from dpal.data.sources import Content, Source
from dpal.labels import Label, Task

KEY = "dpal_key"  # of a task; says nothing about its record
SAID = "said"  # what annotators said before, where one person decides
ANSWER = "label"
_NONE = "none of these"
_KEYS = frozenset(ascii_lowercase + digits)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question about each record: a single choice, or all labels that apply.

    Attributes:
      content: what a record is.
      texts: names of its texts, where it is text.
      choices: what an annotator chooses from, in class order.
      task: one class, or any number of labels.
    """

    content: Content
    texts: tuple[str, ...]
    choices: tuple[str, ...]
    task: Task

    @classmethod
    def about(cls, source: Source, *, classes: int, class_names: Sequence[str]) -> Question:
        """The question about the records of a pool."""
        return cls(
            content=source.content,
            texts=tuple(source.texts) if source.content is Content.TEXT else (),
            choices=tuple(class_names) or tuple(map(str, range(classes))),
            task=source.task,
        )

    @property
    def none(self) -> str:
        """The choice for none of the labels: not to answer is another thing."""
        word = _NONE
        while word in self.choices:
            word = f"({word})"
        return word

    def labeling_config(self, *, decides: bool = False) -> str:
        """The project's page, in Label Studio's XML.

        Args:
          decides: whether it shows what annotators said before.
        """
        multi = self.task is Task.MULTI_LABEL
        choices = [*self.choices, *([self.none] if multi else [])]
        said = ['  <Header value="Annotators said: $said" size="5"/>'] if decides else []
        return "\n".join(
            [
                "<View>",
                *self._shown(),
                *said,
                f'  <Choices name="{ANSWER}" toName="{self._first}" required="true" '
                f'choice="{"multiple" if multi else "single"}" showInLine="true">',
                *(
                    f"    <Choice value={quoteattr(choice)}{key}/>"
                    for choice, key in zip(choices, _own_keys(choices), strict=True)
                ),
                "  </Choices>",
                "</View>",
            ]
        )

    @property
    def _first(self) -> str:
        """The part of a record that the answer hangs on."""
        return self.texts[0] if self.content is Content.TEXT else "record"

    def _shown(self) -> list[str]:
        if self.content is Content.IMAGE:
            # At most so wide that the answers below it are on the same screen.
            return ['  <Image name="record" value="$image" zoom="true" maxWidth="560px"/>']
        if self.content is Content.TEXT:
            return [f'  <Text name="{name}" value="${name}"/>' for name in self.texts]
        # Rows of numbers show nothing; the id lets annotators look the record up.
        return ['  <Text name="record" value="$record"/>']

    def read(self, result: Sequence[Mapping[str, Any]]) -> Label | None:
        """Reads one annotation.

        Args:
          result: its regions, as Label Studio exports them.

        Returns:
          The label; None if it is no valid answer: a choice that is not offered, none, more
          than one class, or "none of these" together with others.
        """
        chosen = [
            str(choice)
            for region in result
            if region.get("from_name") == ANSWER
            for choice in region.get("value", {}).get("choices", ())
        ]
        if self.task is Task.MULTI_LABEL and chosen == [self.none]:
            return (0,) * len(self.choices)
        if not chosen or not set(chosen) <= set(self.choices):
            return None
        if self.task is Task.MULTI_LABEL:
            return tuple(int(choice in chosen) for choice in self.choices)
        return self.choices.index(chosen[0]) if len(chosen) == 1 else None

    def name_of(self, label: Label) -> str:
        """A label as annotators know it."""
        return " + ".join(self.choices_of(label))

    def choices_of(self, label: Label) -> list[str]:
        """What an annotator chooses to give a label."""
        if isinstance(label, int):
            return [self.choices[label]]
        return list(compress(self.choices, label)) or [self.none]

    def answer(self, label: Label) -> dict[str, Any]:
        """A label as a region of an annotation, which `read` reads."""
        chosen = {"choices": self.choices_of(label)}
        return {"from_name": ANSWER, "to_name": self._first, "type": "choices", "value": chosen}


def _own_keys(choices: Sequence[str]) -> list[str]:
    """The key of each choice, as XML: its own where all are one digit or small letter each.

    Else Label Studio numbers them from 1, and the key 1 would choose the digit 0.
    """
    keys = [f"hotkey={quoteattr(choice)}" for choice in choices if choice in _KEYS]
    return [f" {key}" for key in keys] if len(keys) == len(choices) else [""] * len(choices)
