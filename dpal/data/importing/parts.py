"""Which part of a source a record belongs to: the pool, or what is held out to measure models."""

from __future__ import annotations

from dpal.data.held_out import falls_below
from dpal.data.importing.importers import TEST, TRAIN

TRAIN_WORDS = frozenset(("train", "training", "trn", "pool"))
_HELD_OUT_WORDS = frozenset(
    (
        "test", "testing", "tst", "val", "valid", "validate", "validation", "dev", "eval",
        "holdout", "held_out",
    )
)  # fmt: skip


def is_held_out_word(word: str) -> bool:
    """Whether a source means records that are held out."""
    return word.lower() in _HELD_OUT_WORDS


def part_of(word: str | None) -> str | None:
    """The part that a source's own word means: train or test; None where it is no such word."""
    if word is None:
        return None
    lower = word.strip().lower()
    return TRAIN if lower in TRAIN_WORDS else TEST if is_held_out_word(lower) else None


def is_of_part(word: str | None, wanted: str | None) -> bool:
    """Whether a record is of the part that somebody asked for; of any where nobody did."""
    return wanted is None or (word or "").strip().lower() == wanted.strip().lower()


def drawn_part(owner: str, share: float) -> str:
    """Decides by its name alone whether a record is held out: the same in every import.

    Args:
      owner: name of the record, or of its group, which stays together.
      share: of all that are held out.
    """
    return TEST if falls_below(f"dpal held out {owner}", share) else TRAIN
