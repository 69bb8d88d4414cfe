"""The part of who asks in strict mode: what a dealer would have made, it makes with each site.

With each site it computes products and comparisons by oblivious transfers, a few sites at a time,
so that the work of all never lies in memory at once. What follows is as in `dpal.capc.querier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpal.capc.base_transfers import Bytes, offer_keys, offered_keys
from dpal.capc.garbled_signs import evaluate_signs, wire_labels
from dpal.capc.key_streams import fresh_seed
from dpal.capc.messages import Message, SiteBegins
from dpal.capc.party_step_helpers import (
    Outbox,
    Outgoing,
    ballot_shares,
    first_round,
    second_round,
    unexpected,
)
from dpal.capc.querier import QuerierBatch
from dpal.capc.ring import Ring
from dpal.capc.strict_messages import (
    BallotColumns,
    FeatureColumns,
    GarbledBallots,
    GarbledOutcomes,
    HiddenProducts,
    OutcomeColumns,
    TransferChoices,
    TransferOffer,
)
from dpal.capc.strict_sizes import StrictSizes, bits_of, sizes_of, whole_bytes
from dpal.capc.terms import GUARDIAN, Features, QueryBatch
from dpal.capc.transfer_extension import (
    BALLOTS,
    FEATURES,
    OUTCOMES,
    ROWS_OF_A_BYTE,
    RowHash,
    extended_choices,
)
from dpal.capc.transferred_products import feature_bits, querier_products
from dpal.randomness import BitSource, Words

AT_ONCE: Final = 4  # sites: while it works on one, the messages of others are on their way


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerierPair:
    """Where who asks stands with one site.

    Attributes:
      batch: what is asked.
      features: (queries, features) the queries; private to who asks.
      seed: of its base transfers with this site.
      keys: (2, 128, 32) of which the site chose one of each two, once it did.
      row_hash: likewise.
      rows: of the transfers that are under way.
      outcomes: (queries, outcomes) shares of what the first of two rounds found.
      awaits: the site's next message; None once there are votes.
      votes: (queries, counts) shares of the site's votes, at the end.
    """

    batch: QueryBatch
    features: Features
    seed: bytes = field(repr=False)
    keys: Bytes | None = field(default=None, repr=False)
    row_hash: RowHash | None = None
    rows: Words | None = None
    outcomes: Ring | None = None
    awaits: type[Message] | None = TransferChoices
    votes: Ring | None = None

    def offer(self) -> TransferOffer:
        """What begins it."""
        return TransferOffer(offer_keys(self.seed))

    def receive(self, data: bytes) -> tuple[QuerierPair, Message | None]:
        """What it becomes by a message of the site, and its reply.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if self.awaits is TransferChoices:
            return self._chosen(TransferChoices.decode(data, self.batch).points)
        if self.row_hash is None or self.rows is None:
            raise unexpected("a site", ())
        if self.awaits is HiddenProducts:
            hidden = HiddenProducts.decode(data, self.batch).differences
            numbers = querier_products(
                self.rows, feature_bits(self.features), hidden, self.row_hash
            )
            bits = bits_of(first_round(numbers, self.batch), self._sizes.outcome_bits)
            pair, columns = self._asking(bits, OUTCOMES)
            return replace(pair, awaits=GarbledOutcomes), OutcomeColumns(columns)
        if self.awaits is GarbledOutcomes:
            tables = GarbledOutcomes.decode(data, self.batch).tables
            labels = wire_labels(self.rows, len(tables.first), self._sizes.outcome_bits)
            votes = evaluate_signs(tables, labels, self.row_hash, OUTCOMES)
            votes = votes.reshape(self.batch.queries, self.batch.rule.outcomes)
            if self.batch.rule.second is None:
                return self._done(votes), None
            numbers = second_round(votes, self.batch, constants=True)
            pair, columns = self._asking(bits_of(numbers, self._sizes.ballot_bits), BALLOTS)
            pair = replace(pair, outcomes=votes, awaits=GarbledBallots)
            return pair, BallotColumns(columns)
        tables = GarbledBallots.decode(data, self.batch).tables
        labels = wire_labels(self.rows, len(tables.first), self._sizes.ballot_bits)
        votes = evaluate_signs(tables, labels, self.row_hash, BALLOTS)
        votes = votes.reshape(self.batch.queries, self.batch.rule.compared_next)
        if self.outcomes is None:
            raise unexpected("a site", ())
        return self._done(ballot_shares(self.outcomes, votes, self.batch)), None

    @property
    def asked_all(self) -> bool:
        """Whether the site needs nothing more of who asks."""
        last = GarbledOutcomes if self.batch.rule.second is None else GarbledBallots
        return self.awaits in (last, None)

    @property
    def _sizes(self) -> StrictSizes:
        return sizes_of(self.batch)

    def _chosen(self, points: Bytes) -> tuple[QuerierPair, Message]:
        keys = offered_keys(self.seed, points)
        row_hash = RowHash.of(offer_keys(self.seed), points)
        pair, columns = replace(self, keys=keys, row_hash=row_hash)._asking(
            feature_bits(self.features), FEATURES
        )
        return replace(pair, awaits=HiddenProducts), FeatureColumns(columns)

    def _asking(self, bits: NDArray[np.uint8], purpose: int) -> tuple[QuerierPair, Bytes]:
        """Transfers that bits choose, padded to whole bytes."""
        if self.keys is None:
            raise unexpected("a site", ())
        choices = np.zeros(ROWS_OF_A_BYTE * whole_bytes(bits.size), dtype=np.uint8)
        choices[: bits.size] = bits.ravel()
        columns, rows = extended_choices(self.keys, choices, purpose)
        return replace(self, rows=rows), columns

    def _done(self, votes: Ring) -> QuerierPair:
        """Keys and rows have served."""
        done = replace(self, keys=None, row_hash=None, rows=None, outcomes=None, awaits=None)
        return replace(done, votes=votes)


@dataclass(frozen=True, eq=False, kw_only=True)
class StrictQuerierBatch:
    """Where who asks stands.

    Attributes:
      plain: its part that is the same as with a dealer.
      seeds: of its base transfers, by site.
      begun: sites that have begun the batch.
      pairs: with each site that is under way or done.
    """

    plain: QuerierBatch
    seeds: Mapping[str, bytes] = field(repr=False)
    begun: frozenset[str] = field(default_factory=frozenset)
    pairs: Mapping[str, QuerierPair] = field(default_factory=dict)

    @property
    def batch(self) -> QueryBatch:
        """What is asked."""
        return self.plain.batch

    @property
    def answers(self) -> NDArray[np.int64] | None:
        """As `QuerierBatch.answers`."""
        return self.plain.answers

    @property
    def may_be_charged(self) -> bool:
        """Whether all sites have what they need to be ready, so that the guardian may charge."""
        pairs = self.pairs.values()
        return len(self.pairs) == len(self.batch.sites) and all(pair.asked_all for pair in pairs)

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come next."""
        if self.answers is not None:
            return frozenset()
        if self.plain.margin is not None:
            return frozenset({GUARDIAN})
        missing = {site for site, pair in self.pairs.items() if pair.awaits is not None}
        missing |= set(self.batch.sites) - self.begun
        return frozenset(missing | ({self.batch.dealer} if self.plain.lacks_last_deal else set()))

    def receive(self, sender: str, data: bytes) -> tuple[StrictQuerierBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN:
            plain, outbox = self.plain.receive(sender, data)
            return replace(self, plain=plain), outbox
        if sender == self.batch.dealer and self.plain.lacks_last_deal:
            return replace(self, plain=self.plain.with_last_deal(data))._with_margin()
        if sender not in self.begun:
            SiteBegins.decode(data, self.batch)
            return replace(self, begun=self.begun | {sender})._with_offers()
        pair, reply = self.pairs[sender].receive(data)
        state = replace(self, pairs={**self.pairs, sender: pair})
        if reply is not None:
            return state, (Outgoing(sender, reply),)
        state, offers = state._with_offers()
        state, outbox = state._with_margin()
        return state, (*offers, *outbox)

    def _with_offers(self) -> tuple[StrictQuerierBatch, Outbox]:
        """Begins with as many more sites as may be under way at once."""
        open_pairs = sum(pair.awaits is not None for pair in self.pairs.values())
        waiting = [
            site for site in self.batch.sites if site in self.begun and site not in self.pairs
        ]
        begun = {
            site: QuerierPair(batch=self.batch, features=self.plain.features, seed=self.seeds[site])
            for site in waiting[: AT_ONCE - open_pairs]
        }
        outbox = tuple(Outgoing(site, pair.offer()) for site, pair in begun.items())
        return replace(self, pairs={**self.pairs, **begun}), outbox

    def _with_margin(self) -> tuple[StrictQuerierBatch, Outbox]:
        """Its share of the noisy counts, or margins, once all sites are done."""
        votes = [
            pair.votes
            for pair in map(self.pairs.get, self.batch.sites)
            if pair is not None and pair.votes is not None
        ]
        if len(votes) < len(self.batch.sites) or self.plain.lacks_last_deal:
            return self, ()
        plain, outbox = self.plain.counted(np.stack(votes))
        return replace(self, plain=plain), outbox


def begin_strict_querier(plain: QuerierBatch, *, rng: BitSource) -> StrictQuerierBatch:
    """Who asks begins a batch in strict mode.

    Args:
      plain: from `begin_querier`.
      rng: source of its base transfers.
    """
    seeds = {site: fresh_seed(rng) for site in plain.batch.sites}
    return StrictQuerierBatch(plain=plain, seeds=seeds)
