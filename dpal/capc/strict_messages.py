"""Messages of strict mode, between each site and who asks: as `dpal.capc.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dpal.capc.base_transfers import Bytes
from dpal.capc.garbled_signs import GarbledTables
from dpal.capc.messages import Layout, Message, SiteBegins
from dpal.capc.ring import Ring
from dpal.capc.terms import QueryBatch
from dpal.capc.transferred_products import HiddenDifferences
from dpal.randomness import Words


@dataclass(frozen=True, eq=False)
class TransferOffer(Message):
    """From who asks to a site: a pair begins.

    Attributes:
      point: (32,) as in `offer_keys`.
    """

    kind = 32
    layout: ClassVar[Layout] = {"point": ("u1", ("point",))}
    point: Bytes


@dataclass(frozen=True, eq=False)
class TransferChoices(Message):
    """From a site to who asks.

    Attributes:
      points: (128, 32) as in `choose_keys`.
    """

    kind = 33
    layout: ClassVar[Layout] = {"points": ("u1", ("transfers", "point"))}
    points: Bytes


@dataclass(frozen=True, eq=False)
class FeatureColumns(Message):
    """From who asks to a site: the bits of its queries, as `extended_choices` hides them.

    Attributes:
      columns: (128, bytes).
    """

    kind = 34
    layout: ClassVar[Layout] = {"columns": ("u1", ("transfers", "feature bytes"))}
    columns: Bytes


@dataclass(frozen=True, eq=False)
class HiddenProducts(Message):
    """From a site to who asks: its weights, as `HiddenDifferences`."""

    kind = 35
    layout: ClassVar[Layout] = {
        "low": ("<u2", ("queries", "bits", "features", "labels")),
        "high": ("u1", ("queries", "high bits", "features", "labels")),
        "top": ("u1", ("queries", "top bits", "features", "labels")),
    }
    low: NDArray[np.uint16]
    high: NDArray[np.uint8]
    top: NDArray[np.uint8]

    @property
    def differences(self) -> HiddenDifferences:
        """As `querier_products` takes them."""
        return HiddenDifferences(self.low, self.high, self.top)


@dataclass(frozen=True, eq=False)
class OutcomeColumns(Message):
    """From who asks to a site: the bits of its shares of the outcomes, likewise."""

    kind = 36
    layout: ClassVar[Layout] = {"columns": ("u1", ("transfers", "outcome bytes"))}
    columns: Bytes


@dataclass(frozen=True, eq=False)
class BallotColumns(Message):
    """From who asks to a site: the bits of its shares of the second round, likewise."""

    kind = 37
    layout: ClassVar[Layout] = {"columns": ("u1", ("transfers", "ballot bytes"))}
    columns: Bytes


@dataclass(frozen=True, eq=False)
class _Garbled(Message):
    """From a site to who asks: comparisons, as `GarbledTables`."""

    first: Words
    carries: Words
    outcomes: Ring

    @property
    def tables(self) -> GarbledTables:
        """All of them in one row."""
        count = self.outcomes.size // 2
        return GarbledTables(self.first, self.carries, self.outcomes).shaped(count)


def _tables(carries: str, *comparisons: str) -> Layout:
    return {
        "first": ("<u8", (*comparisons, "two")),
        "carries": ("<u8", (carries, *comparisons, "two", "two")),
        "outcomes": ("<u4", (*comparisons, "two")),
    }


@dataclass(frozen=True, eq=False)
class GarbledOutcomes(_Garbled):
    """Of the first round."""

    kind = 38
    layout: ClassVar[Layout] = _tables("outcome carries", "queries", "outcomes")


@dataclass(frozen=True, eq=False)
class GarbledBallots(_Garbled):
    """Of the second round."""

    kind = 39
    layout: ClassVar[Layout] = _tables("ballot carries", "queries", "next")


@dataclass(frozen=True, eq=False)
class SiteReady(Message):
    """From a site to the guardian: it can vote. Nothing of its vote has left."""

    kind = 40
    layout: ClassVar[Layout] = {}


@dataclass(frozen=True, eq=False)
class BatchCharged(Message):
    """From the guardian to a site, once the batch is charged: it is to vote."""

    kind = 41
    layout: ClassVar[Layout] = {}


TO_SITE: Final = (TransferOffer, FeatureColumns, OutcomeColumns)
TO_QUERIER: Final = (SiteBegins, TransferChoices, HiddenProducts, GarbledOutcomes)


def kinds_to_site(batch: QueryBatch) -> tuple[type[Message], ...]:
    """What who asks sends a site."""
    return TO_SITE if batch.rule.second is None else (*TO_SITE, BallotColumns)


def kinds_to_querier(batch: QueryBatch) -> tuple[type[Message], ...]:
    """What a site sends who asks."""
    return TO_QUERIER if batch.rule.second is None else (*TO_QUERIER, GarbledBallots)
