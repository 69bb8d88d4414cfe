"""Messages between parties: fixed fields of fixed sizes, and nothing that could be run.

No message says how long it is or what is in it: its kind and the batch do. Whatever has another
length or another kind than its receiver waits for is refused before anything in it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from dpal.capc.distributed_comparison import SALT_BYTES, Corrections
from dpal.capc.key_streams import SEED_BYTES
from dpal.capc.ring import Ring
from dpal.capc.shared_signs import LEVELS, SignCorrections, SignKeys, sign_keys, sign_shares
from dpal.capc.strict_sizes import sizes_of
from dpal.capc.terms import QueryBatch
from dpal.errors import ProtocolError

FORMAT: Final = 1
EVALUATION_BYTES: Final = 16
Layout = Mapping[str, tuple[str, tuple[str, ...]]]

_HEADER: Final = 6  # format, kind, number of the batch


@dataclass(frozen=True, eq=False)
class Message:
    """One message. Fields are bytes, or arrays in little-endian order, one after the other.

    Attributes:
      kind: its number on the wire; never given to another kind.
      layout: type and dimensions of each field, in order.
    """

    kind: ClassVar[int]
    layout: ClassVar[Layout]

    @classmethod
    def size(cls, batch: QueryBatch) -> int:
        """Bytes of a message of this kind."""
        return _HEADER + sum(_bytes_of(*shape, batch) for shape in cls.layout.values())

    def encode(self, batch: QueryBatch) -> bytes:
        """Its bytes."""
        parts: list[Any] = [bytes([FORMAT, self.kind]), batch.number.to_bytes(4, "little")]
        for name, (dtype, dimensions) in self.layout.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=dtype)
            if array.shape != _shape(dimensions, batch):
                raise ProtocolError(f"{type(self).__name__} has a field {name} of another size")
            parts.append(array.reshape(-1).view(np.uint8).data)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, batch: QueryBatch) -> Self:
        """Reads a message of this kind in this batch.

        Raises:
          ProtocolError: it is anything else.
        """
        if len(data) < _HEADER or data[0] != FORMAT or data[1] != cls.kind:
            raise ProtocolError(f"a message came that is no {cls.__name__}")
        if int.from_bytes(data[2:_HEADER], "little") != batch.number:
            raise ProtocolError(f"a {cls.__name__} of another batch came")
        if len(data) != cls.size(batch):
            raise ProtocolError(
                f"a {cls.__name__} has {len(data):,} bytes where it must have {cls.size(batch):,}"
            )
        values, start = {}, _HEADER
        for name, (dtype, dimensions) in cls.layout.items():
            stop = start + _bytes_of(dtype, dimensions, batch)
            values[name] = np.frombuffer(data[start:stop], dtype).reshape(_shape(dimensions, batch))
            start = stop
        return cls(**values)


def _signs(*comparisons: str) -> Layout:
    """Fields that carry corrections of signs for so many comparisons."""
    return {
        "salt": ("u1", ("salt",)),
        "seeds": ("<u8", ("levels", *comparisons, "two")),
        "values": ("<u4", ("leaves", *comparisons)),
        "turns": ("<u4", ("two", *comparisons)),
        "tops": ("<u4", comparisons),
    }


@dataclass(frozen=True, eq=False)
class Dealt(Message):
    """A seed, and corrections for comparisons.

    Attributes:
      seed: from which the receiver's own part is expanded.
      salt: of the comparisons' generator.
      seeds: as in `Corrections`; likewise the next two.
      values: as in `Corrections`.
      turns: as in `Corrections`.
      tops: as in `SignCorrections`.
    """

    seed: NDArray[np.uint8]
    salt: NDArray[np.uint8]
    seeds: NDArray[np.uint64]
    values: Ring
    turns: Ring
    tops: Ring

    @property
    def keys(self) -> SignKeys:
        """The receiver's own part of all of them."""
        return sign_keys(self.seed.tobytes(), "signs", self.tops.size)

    def signs(self, opened: Ring, party: int) -> Ring:
        """Shares of whether what was opened is at least 0.

        Args:
          opened: masked numbers, as many as there are comparisons; the shares have its shape.
          party: 0, or 1 whose corrections are added.
        """
        salt = self.salt.tobytes()
        shares = sign_shares(opened.ravel(), party, self.keys, self.corrections, salt)
        return shares.reshape(opened.shape)

    @property
    def corrections(self) -> SignCorrections:
        """All of them in one row."""
        count = self.tops.size
        return SignCorrections(
            Corrections(
                self.seeds.reshape(LEVELS, count, 2),
                self.values.reshape(LEVELS + 1, count),
                self.turns.reshape(2, count),
            ),
            self.tops.reshape(count),
        )


@dataclass(frozen=True, eq=False)
class QuerierDeal(Dealt):
    """From the guardian to who asks: one deal for all sites.

    Attributes:
      products: (sites, queries, labels) its share of what each site's mask makes of the query's.
    """

    kind = 1
    layout: ClassVar[Layout] = {
        "seed": ("u1", ("seed",)),
        **_signs("sites", "queries", "outcomes"),
        "products": ("<u4", ("sites", "queries", "labels")),
    }  # fmt: skip
    products: Ring


@dataclass(frozen=True, eq=False)
class SiteDeal(Dealt):
    """From the guardian to a site."""

    kind = 2
    layout: ClassVar[Layout] = {"seed": ("u1", ("seed",)), **_signs("queries", "outcomes")}


@dataclass(frozen=True, eq=False)
class LastDeal(Dealt):
    """From the dealing site to the guardian, and another one to who asks: the noisy majorities."""

    kind = 3
    layout: ClassVar[Layout] = {"seed": ("u1", ("seed",)), **_signs("queries", "counts")}


@dataclass(frozen=True, eq=False)
class QuerierBallotDeal(Dealt):
    """From the guardian to who asks: the second round, one deal for all sites."""

    kind = 10
    layout: ClassVar[Layout] = {"seed": ("u1", ("seed",)), **_signs("sites", "queries", "next")}


@dataclass(frozen=True, eq=False)
class SiteBallotDeal(Dealt):
    """From the guardian to a site: the second round."""

    kind = 11
    layout: ClassVar[Layout] = {"seed": ("u1", ("seed",)), **_signs("queries", "next")}


@dataclass(frozen=True, eq=False)
class HiddenWeights(Message):
    """From a site to who asks: its weights under a mask of the guardian's, once for each batch.

    Attributes:
      difference: (labels, features).
    """

    kind = 4
    layout: ClassVar[Layout] = {"difference": ("<u4", ("labels", "features"))}
    difference: Ring


@dataclass(frozen=True, eq=False)
class HiddenQuery(Message):
    """From who asks to a site.

    Attributes:
      difference: (queries, features) the queries under a mask.
      masked: (queries, outcomes) its share of the outcomes, under its part of a mask.
    """

    kind = 5
    layout: ClassVar[Layout] = {
        "difference": ("<u4", ("queries", "features")),
        "masked": ("<u4", ("queries", "outcomes")),
    }
    difference: Ring
    masked: Ring


@dataclass(frozen=True, eq=False)
class MaskedOutcome(Message):
    """From a site to who asks: its share of the outcomes, under its part of a mask.

    Attributes:
      values: (queries, outcomes).
    """

    kind = 6
    layout: ClassVar[Layout] = {"values": ("<u4", ("queries", "outcomes"))}
    values: Ring


@dataclass(frozen=True, eq=False)
class _Shares(Message):
    """One number for every count.

    Attributes:
      values: (queries, counts).
    """

    layout: ClassVar[Layout] = {"values": ("<u4", ("queries", "counts"))}
    values: Ring


@dataclass(frozen=True, eq=False)
class MaskedBallot(Message):
    """Between a site and who asks, from both: its share of the second round, under its mask.

    Attributes:
      values: (queries, compared).
    """

    kind = 12
    layout: ClassVar[Layout] = {"values": ("<u4", ("queries", "next"))}
    values: Ring


@dataclass(frozen=True, eq=False)
class PaddedCounts(_Shares):
    """From the guardian to who asks: with it the noisy counts are released.

    Its sum of what sites sent, under their pads with who asks.
    """

    kind = 13


@dataclass(frozen=True, eq=False)
class PaddedVotes(_Shares):
    """From a site to the guardian: its share of its votes, its noise, and pads."""

    kind = 7


@dataclass(frozen=True, eq=False)
class MaskedMargin(_Shares):
    """From who asks to the guardian: its share of the noisy margins, masked."""

    kind = 8


@dataclass(frozen=True, eq=False)
class GuardianAnswer(Message):
    """From the guardian to who asks: with it the noisy majorities are released.

    Attributes:
      masked: (queries, counts) its share of the noisy margins, masked.
      shares: (queries, counts) its shares of the answers.
    """

    kind = 9
    layout: ClassVar[Layout] = {
        "masked": ("<u4", ("queries", "counts")),
        "shares": ("<u4", ("queries", "counts")),
    }
    masked: Ring
    shares: Ring


@dataclass(frozen=True, eq=False)
class SiteBegins(Message):
    """From a site to who asks: it has begun the batch, and can be worked with."""

    kind = 42
    layout: ClassVar[Layout] = {}


@dataclass(frozen=True, eq=False)
class WantedShares(Message):
    """From who asks to a site: of which outcomes, computed before the vote, shares are counted.

    Attributes:
      evaluation: (16,) which evaluation of the site's model, as in `HeldShares`.
      rows: (queries,) its queries, as they are numbered there.
    """

    kind = 43
    layout: ClassVar[Layout] = {
        "evaluation": ("u1", ("evaluation",)),
        "rows": ("<u4", ("queries",)),
    }
    evaluation: NDArray[np.uint8]
    rows: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class SharesCounted(Message):
    """From a site to who asks: it has the shares that are wanted, and has voted by them."""

    kind = 44
    layout: ClassVar[Layout] = {}


def dealt_fields(
    seed: bytes, salt: bytes, corrections: SignCorrections, *shape: int
) -> dict[str, Any]:
    """Fields of a deal, its comparisons in this shape."""
    comparisons = corrections.comparisons
    return {
        "seed": np.frombuffer(seed, np.uint8),
        "salt": np.frombuffer(salt, np.uint8),
        "seeds": comparisons.seeds.reshape(LEVELS, *shape, 2),
        "values": comparisons.values.reshape(LEVELS + 1, *shape),
        "turns": comparisons.turns.reshape(2, *shape),
        "tops": corrections.tops.reshape(shape),
    }


def _shape(dimensions: tuple[str, ...], batch: QueryBatch) -> tuple[int, ...]:
    lengths = {
        "seed": SEED_BYTES,
        "evaluation": EVALUATION_BYTES,
        "salt": SALT_BYTES,
        "levels": LEVELS,
        "leaves": LEVELS + 1,
        "two": 2,
        "sites": len(batch.sites),
        "queries": batch.queries,
        "labels": batch.labels,
        "outcomes": batch.rule.outcomes,
        "next": batch.rule.compared_next,
        "counts": batch.rule.counts,
        "features": batch.features,
    }
    if batch.is_strict:
        lengths.update(sizes_of(batch).lengths)
    return tuple(lengths[name] for name in dimensions)


def _bytes_of(dtype: str, dimensions: tuple[str, ...], batch: QueryBatch) -> int:
    size = np.dtype(dtype).itemsize
    for length in _shape(dimensions, batch):
        size *= length
    return size
