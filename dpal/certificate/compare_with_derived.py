"""Whether a certificate says what follows from its entries: key by key, figures as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpal.certificate.read_and_seal import INFORMATIVE, is_same_json

Place = tuple[str | int, ...]
Room = Callable[[Place], float | None]  # how far a figure may lie apart; None where none stands


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One place where a certificate says something else than what follows.

    Attributes:
      place: keys and numbers that lead there.
      says: what is wrong.
    """

    place: Place
    says: str


def differences(
    stated: Mapping[str, Any], follows: Mapping[str, Any], room: Room
) -> tuple[list[Difference], list[Difference]]:
    """Compares a whole certificate with what follows from its entries.

    Every key must be there, and no other. Figures must be decimal numbers, and may differ as far
    as they have room; everything else must be the same to the letter.

    Args:
      stated: the certificate.
      follows: all of it but its versions and its digest.
      room: of figures.

    Returns:
      What differs to the letter, and what differs in figures.
    """
    besides = (*INFORMATIVE, "digest")
    rest = {key: value for key, value in stated.items() if key not in besides}
    letters: list[Difference] = list(_versions(stated))
    figures: list[Difference] = []
    for difference in _differences(rest, follows, (), room):
        places = (difference.place[:length] for length in range(1, len(difference.place) + 1))
        is_figure = any(room(place) is not None for place in places)
        (figures if is_figure else letters).append(difference)
    return letters, figures


def _differences(stated: Any, follows: Any, place: Place, room: Room) -> Iterator[Difference]:
    apart = room(place)
    if apart is not None:
        yield from _figure(stated, follows, place, apart)
    elif isinstance(stated, dict) and isinstance(follows, Mapping):
        for key in sorted(stated.keys() | follows.keys()):
            if key not in stated:
                yield _at((*place, key), "is missing")
            elif key not in follows:
                yield _at((*place, key), "is stated, and a certificate states no such thing")
            else:
                yield from _differences(stated[key], follows[key], (*place, key), room)
    elif isinstance(stated, list) and isinstance(follows, list) and len(stated) == len(follows):
        for number, (said, right) in enumerate(zip(stated, follows, strict=True)):
            yield from _differences(said, right, (*place, number), room)
    elif not is_same_json(stated, follows):
        yield _at(place, "the certificate says something else than its entries")


def _figure(stated: Any, follows: float, place: Place, apart: float) -> Iterator[Difference]:
    if type(stated) is not float:
        yield _at(place, "is not stated as a decimal number")
    elif not abs(stated - follows) <= apart:  # so that NaN fails
        yield _at(place, f"is stated as {stated:.4f}, and the events cost {follows:.4f}")


def _versions(stated: Mapping[str, Any]) -> Iterator[Difference]:
    for key in INFORMATIVE:
        value = stated.get(key)
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
            yield _at((key,), "is no list of names and versions")


def _at(place: Place, says: str) -> Difference:
    return Difference(place=place, says=f"{'.'.join(map(str, place))} {says}")
