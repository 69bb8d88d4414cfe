"""What a person says about files that are to be imported: all of it public."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dpal import check
from dpal.errors import ParameterError


class Unsure(StrEnum):
    """What becomes of a label that is uncertain (-1), or of one that nobody mentioned (blank).

    UNKNOWN: it is neither learned nor judged. NO, YES: it counts as that answer.
    """

    UNKNOWN = "unknown"
    NO = "no"
    YES = "yes"


@dataclass(frozen=True, kw_only=True)
class PictureRule:
    """How every picture is brought to one form; a public function of that picture alone.

    Attributes:
      size: width and height; None keeps each as it is.
      crop: whether the largest middle part of that shape is cut out first; otherwise a picture is
        stretched.
      grey: True makes all grey, False all RGB, None leaves them.
      bits: of 16 that hold fewer, such as 12: values are brought to the whole range.
    """

    size: tuple[int, int] | None = None
    crop: bool = False
    grey: bool | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        for side in self.size or ():
            check.within(1, 8192, size=side)
        if self.crop and self.size is None:
            raise ParameterError("--crop cuts pictures to the shape of --size; give that, too")
        if self.bits is not None:
            check.within(9, 16, bits=self.bits)


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """Which parts of a source are what.

    Attributes:
      labels: name of the column or field of labels; several are one label each (0, 1, -1, blank).
      separator: between the labels that one text lists; None: a text is one class.
      without: text that says that a record has none of the labels.
      classes: names in class order; empty: as held-out records have them.
      texts: names of one or two fields of texts; empty: as usual names say.
      picture: name of the column that names or holds pictures; None: as usual names say.
      pictures: folder in which named pictures are; None: beside the table.
      id: column of names; None: `id`, or made of file and row.
      group: column of what belongs together; of DICOM files in folders an element of their headers.
      groups_in_clear: whether what DICOM files say of that is written as it is, not as a pseudonym.
      split: column of parts (train, and whatever else is held out); None: `split`, if there is one.
      held_out: share of records that is held out where the source has no parts; None: not allowed.
      header: whether the first line of a CSV file names its columns; None: if it looks like that.
      left_out: columns of a table that are no features.
      columns: names of those that an earlier import had.
      always: of these, the ones in which every record that decided about them had a cell.
      picture_rule: how pictures are brought to one form.
      uncertain: what a -1 among several labels means.
      blank: what a blank among several labels means.
      value_range: lowest and highest value of pictures that are arrays of fractions, or DICOM.
      keep_unlabeled: whether records without a label stay where others have one.
      whole: whether all records stay together, whatever their part and label: for predictions.
      part: of the source, in its own word, that alone is imported; None: all of it.
      only: columns of a table, and the texts of which a row has one in each; other rows are left
        out. Empty: all of them stay.
      expected: how many records the source is known to have for the pool, and held out, as it
        divides them itself: of one that does not, all are of the pool. None where nobody says so.
        Those that `part` and `only` leave out count, those without a label where they are kept.
    """

    labels: tuple[str, ...] = ()
    separator: str | None = None
    without: str | None = None
    classes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    picture: str | None = None
    pictures: Path | None = None
    id: str | None = None
    group: str | None = None
    split: str | None = None
    held_out: float | None = None
    header: bool | None = None
    left_out: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    picture_rule: PictureRule = field(default_factory=PictureRule)
    uncertain: Unsure = Unsure.UNKNOWN
    blank: Unsure = Unsure.UNKNOWN
    value_range: tuple[float, float] | None = None
    keep_unlabeled: bool = False
    whole: bool = False
    part: str | None = None
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()
    groups_in_clear: bool = False
    expected: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.held_out is not None:
            check.inside(0, 1, split=self.held_out)
        if len(self.texts) > 2:
            raise ParameterError(
                f"a record has one text or two, and --text names {len(self.texts)}"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ParameterError("--classes names a class twice; name each once")
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise ParameterError("--range needs the lowest value first, such as 0:1")
