"""Texts: the same but for spelling, alike but for one typing error.

The same are texts with the same letters, digits and symbols in the same order: compatible forms
of characters count as one (NFKC), and so do upper and lower case; white space and punctuation do
not count, but for what stands between two digits ("1.5 mg"). A pair is two texts, in their order.

Alike are texts of which one word differs, by one letter more, less, or another one, or by the
order of its letters. A digit is never a typing error: "5 mg" is not "6 mg". Short texts are not
compared, as many people write them nearly alike.

One error leaves the beginning or the end of a text as it was; both are kept as keyed hashes, by
which candidates are found. Whether no more than one letter differs is seen from sums modulo a
prime, over secret numbers x that stand for characters and words. Where a letter a comes for a
letter b, the differences of the sums of x, x^2 and x^3 are d_k = a^k - b^k, hence

    4 d1 d3 = 3 d2^2 + d1^4,

also where nothing was before (b = 0) or nothing comes (a = 0). Sums weighted by the places of
letters differ by a multiple of d_k, the place; where two neighbours change places nothing else
differs, and the weighted sums do as above. Of the words, only one differs: the difference of their
sum weighted by places is a multiple of that of their sum. What passes all this by chance does so
once in some 2^31 times.

Source:
  Characteristic sums of sets that differ by few: Minsky, Trachtenberg & Zippel (2003), Set
  reconciliation with nearly optimal communication complexity.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from dpal.data.likeness.enumerate_pairs import pairs_in
from dpal.data.likeness.record_sketches import NOBODY, Described, Rows, Sketches, SketchRows
from dpal.data.parquet import RowNumbers
from dpal.data.texts import texts_in

WAY = "text-1"
SALTED, NEAREST = True, False

Numbers = NDArray[np.int64]

# Four keyed hashes of beginnings and ends, three sums over letters, the same weighted by their
# places, a sum over words, the same weighted, the length.
_FIELDS = 13
WIDTH = 4 * _FIELDS
_KEYS, _LETTERS, _PLACED, _WORDS, _LENGTH = *map(slice, (0, 4, 7, 10), (4, 7, 10, 12)), 12

_SHORTEST = 32  # characters; shorter ones by different people are alike too often
_PRIME = 2**31 - 1
_BETWEEN = "\n"  # the texts of a pair; stands in no normalised one
# So many texts that begin, or end, alike are a form that many people filled in.
_MOST_ALIKE = 4096
_PAIRS_AT_ONCE = 1 << 18


def describe(column: pa.StructArray, *, rows: RowNumbers | None, salt: bytes) -> Described:
    """Reads texts, or pairs of texts.

    Args:
      column: n values with the field `text_a` and, for pairs, `text_b`.
      rows: which rows they are, for messages; None where that is nobody's business.
      salt: the secret under which they are hashed.

    Raises:
      DataError: a text is missing.
    """
    said: list[bytes] = []
    fields = np.zeros((len(column), _FIELDS), "<u4")
    for row, record in enumerate(texts_in(column, rows=rows)):
        spelled = [normalised(text) for text in record]
        said.append(_content(record, spelled))
        joined = _BETWEEN.join(spelled)
        if len(joined) >= _SHORTEST - 1:  # the longer one of a pair counts
            fields[row] = _fields(joined, salt)
    sketches = fields.view(np.uint8).reshape(len(column), WIDTH)
    return Described(said, sketches, fields[:, _LENGTH] >= _SHORTEST)


def contents(
    column: pa.StructArray, decoded: Tensor, *, rows: RowNumbers | None
) -> Iterator[bytes]:
    """Bytes that two texts, or pairs of texts, share exactly when they are the same.

    Args:
      column: n values with the field `text_a` and, for pairs, `text_b`.
      decoded: has no part in this: tokens end where a model stops reading.
      rows: which rows they are, for messages; None where that is nobody's business.
    """
    for record in texts_in(column, rows=rows):
        yield _content(record, [normalised(text) for text in record])


def _content(record: Sequence[str], spelled: Sequence[str]) -> bytes:
    """Of a text, or a pair, as it was given and as `normalised` spells it."""
    plain = [
        text.replace(" ", "") or "".join(unicodedata.normalize("NFKC", given).split())
        for text, given in zip(spelled, record, strict=True)
    ]
    return json.dumps(plain).encode()


def find(known_sketches: SketchRows, new: Sketches) -> Rows:
    """For each new text the first known one that is alike, -1 where none is.

    Args:
      known_sketches: (m, WIDTH)
      new: (n, WIDTH)

    Returns:
      (n,) rows of `known_sketches`.
    """
    there, here = _read(known_sketches[:]), _read(new)
    rows, comparable = np.flatnonzero(there[:, _LENGTH]), here[:, _LENGTH] > 0
    matches = np.full(len(new), len(known_sketches), np.intp)
    for key in range(_KEYS.stop):
        order = rows[np.argsort(there[rows, key], kind="stable")]
        begin = np.searchsorted(there[order, key], here[:, key], side="left")
        end = np.searchsorted(there[order, key], here[:, key], side="right")
        end = np.where(comparable, np.minimum(end, begin + _MOST_ALIKE), begin)
        for new_rows, places in pairs_in(begin, end, _PAIRS_AT_ONCE):
            among = order[places]
            for test in (_one_letter_apart, _one_error_apart):
                close = test(there[among], here[new_rows])
                new_rows, among = new_rows[close], among[close]
            np.minimum.at(matches, new_rows, among)
    return np.where(matches == len(known_sketches), NOBODY, matches)


def normalised(text: str) -> str:
    """Letters, marks, digits and symbols of a text, its words parted by single spaces.

    >>> normalised("  Does N'T  work!! ")
    'does nt work'
    >>> normalised("1.5 mg") == normalised("15 mg")
    False
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_IN_NUMBERS.sub(_held, folded).translate(_KEPT).split())


def _held(punctuation: re.Match[str]) -> str:
    """Something for it that is no punctuation and stands in no text."""
    return chr(_PRIVATE_USE + ord(punctuation.group()))


class _Kept(dict[int, str | None]):
    """What becomes of a character: itself, a space, or nothing."""

    def __missing__(self, code: int) -> str | None:
        character, category = chr(code), unicodedata.category(chr(code))
        # Not Sk: accents by themselves.
        kept = category[0] in "LMN" or category in ("Sc", "Sm", "So", "Co")
        self[code] = character if kept else " " if character.isspace() else None
        return self[code]


_KEPT = _Kept()
_IN_NUMBERS = re.compile(r"(?<=\d)[.,:/-](?=\d)")
_PRIVATE_USE = 0xE000


def _fields(text: str, salt: bytes) -> list[int]:
    # A changed digit changes all four.
    digits = "".join(character for character in text if character.isnumeric())
    keys = []
    # Two lengths that differ by one have one of these halves in common.
    for half in (len(text) // 4 * 4 // 2, ((len(text) - 2) // 4 * 4 + 2) // 2):
        # Two characters in the middle belong to neither, so that they may change places.
        count = half - 1
        keys += [
            _keyed(f"{side}{count}{_BETWEEN}{digits}{_BETWEEN}{part}", salt, 4)
            for side, part in (("begins", text[:count]), ("ends", text[-count:]))
        ]
    places: dict[str, int] = defaultdict(int)
    for place, character in enumerate(text, start=1):
        places[character] += place
    letters, placed = [0, 0, 0], [0, 0, 0]
    for character, count in Counter(text).items():
        number = 0 if character.isnumeric() else _number(character, salt)
        for k in range(3):
            letters[k] += count * number ** (k + 1)
            placed[k] += places[character] * number ** (k + 1)
    words = [_number(word, salt) for word in text.split()]
    weighted = sum(place * number for place, number in enumerate(words, start=1))
    sums = [total % _PRIME for total in (*letters, *placed, sum(words), weighted)]
    return [*keys, *sums, min(len(text), 2**32 - 1)]


def _one_letter_apart(known_fields: Numbers, new: Numbers) -> NDArray[np.bool_]:
    lengths = np.stack([known_fields[:, _LENGTH], new[:, _LENGTH]])
    comparable = (lengths.max(axis=0) >= _SHORTEST) & (np.ptp(lengths, axis=0) <= 1)
    letters = (new[:, _LETTERS] - known_fields[:, _LETTERS]) % _PRIME
    apart: NDArray[np.bool_] = _one_for_another(letters) | (letters == 0).all(axis=1)
    apart &= comparable
    return apart


def _one_error_apart(known_fields: Numbers, new: Numbers) -> NDArray[np.bool_]:
    """Of texts whose letters differ by at most one, those that have them in the same places."""
    letters, placed, words = (
        (new[:, which] - known_fields[:, which]) % _PRIME for which in (_LETTERS, _PLACED, _WORDS)
    )
    longest = np.maximum(known_fields[:, _LENGTH], new[:, _LENGTH])
    place = placed[:, 0] * _inverse(letters[:, 0]) % _PRIME
    replaced = (place <= longest) & (placed[:, 1] == place * letters[:, 1] % _PRIME)
    swapped = (letters == 0).all(axis=1) & _one_for_another(placed)
    inserted = known_fields[:, _LENGTH] != new[:, _LENGTH]  # where all that follow move on
    word = words[:, 1] * _inverse(words[:, 0]) % _PRIME
    one_word = (words[:, 0] != 0) & (word <= longest)
    replaced &= letters[:, 0] != 0
    apart: NDArray[np.bool_] = one_word & (inserted | swapped | replaced)
    return apart


def _one_for_another(differences: Numbers) -> NDArray[np.bool_]:
    """Whether sums of first, second and third powers differ by one number's for another's."""
    first, second, third = differences.T
    squared = first * first % _PRIME
    left = 4 * first % _PRIME * third
    right = 3 * (second * second % _PRIME) + squared * squared % _PRIME
    replaced: NDArray[np.bool_] = (first != 0) & ((left - right) % _PRIME == 0)
    return replaced


def _inverse(numbers: Numbers) -> Numbers:
    """Of each number its inverse modulo the prime (Fermat); 0 of 0."""
    inverse, square = np.ones_like(numbers), numbers
    for bit in range(31):
        if (_PRIME - 2) >> bit & 1:
            inverse = inverse * square % _PRIME
        square = square * square % _PRIME
    return inverse


def _read(sketches: Sketches) -> Numbers:
    return np.ascontiguousarray(sketches).view("<u4").astype(np.int64)


@lru_cache(maxsize=1 << 16)
def _number(text: str, salt: bytes) -> int:
    return 1 + _keyed(text, salt, 8) % (_PRIME - 1)


def _keyed(text: str, salt: bytes, size: int) -> int:
    whole = text.encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(whole, digest_size=size, key=salt, person=b"dpal.text-1")
    return int.from_bytes(hashed.digest(), "little")
