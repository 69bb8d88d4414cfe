"""A site's part in strict mode: what a dealer would have made, it makes with who asks.

All that it draws for a batch follows from one seed: its secret of the transfers, and its uniform
shares of the outcomes. It votes once the guardian says that the batch is charged: until then
nothing of its vote has left, and whoever begins again finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpal.capc.base_transfers import Bytes, choose_keys
from dpal.capc.garbled_signs import GarbledTables, garble_signs, wire_labels
from dpal.capc.key_streams import KeyStream, fresh_seed
from dpal.capc.messages import Message, SiteBegins
from dpal.capc.party_step_helpers import (
    Outbox,
    Outgoing,
    ballot_shares,
    first_round,
    second_round,
    unexpected,
)
from dpal.capc.ring import Ring, to_ring
from dpal.capc.site import SiteBatch
from dpal.capc.strict_messages import (
    BallotColumns,
    BatchCharged,
    FeatureColumns,
    GarbledBallots,
    GarbledOutcomes,
    HiddenProducts,
    OutcomeColumns,
    SiteReady,
    TransferChoices,
    TransferOffer,
)
from dpal.capc.strict_sizes import sizes_of
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch
from dpal.capc.transfer_extension import (
    BALLOTS,
    FEATURES,
    OUTCOMES,
    RowHash,
    extended_rows,
    secret_choices,
)
from dpal.capc.transferred_products import site_products
from dpal.randomness import BitSource, Words


@dataclass(frozen=True, eq=False, kw_only=True)
class StrictSiteBatch:
    """Where a site stands.

    Attributes:
      plain: its part that is the same as with a dealer.
      seed: of all that it draws.
      keys: (128, 32) that it chose in base transfers.
      row_hash: of the pair.
      numbers: (queries, labels) its shares of what its heads say, without bias.
      awaits: the next message of who asks; None once it is ready.
    """

    plain: SiteBatch
    seed: bytes = field(repr=False)
    keys: Bytes | None = field(default=None, repr=False)
    row_hash: RowHash | None = None
    numbers: Ring | None = None
    awaits: type[Message] | None = TransferOffer

    @property
    def batch(self) -> QueryBatch:
        """What is asked."""
        return self.plain.batch

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before it is done."""
        if self.plain.is_done:
            return frozenset()
        return frozenset({QUERIER if self.awaits is not None else GUARDIAN})

    def receive(self, sender: str, data: bytes) -> tuple[StrictSiteBatch, Outbox]:
        """What it becomes by a message, and what it sends.

        Raises:
          ProtocolError: the message cannot come now.
        """
        if sender not in self.awaited:
            raise unexpected(sender, self.awaited)
        if sender == GUARDIAN:
            BatchCharged.decode(data, self.batch)
            votes = self._outcomes()
            if self.batch.rule.second is not None:
                votes = ballot_shares(votes, self._ballots(), self.batch)
            plain, outbox = self.plain.voted(votes)
            return replace(self, plain=plain), outbox
        if self.awaits is TransferOffer:
            return self._chosen(TransferOffer.decode(data, self.batch).point)
        if self.keys is None or self.row_hash is None:
            raise unexpected(sender, self.awaited)
        if self.awaits is FeatureColumns:
            columns = FeatureColumns.decode(data, self.batch).columns
            return self._multiplied(columns, self.keys, self.row_hash)
        if self.numbers is not None and self.awaits is OutcomeColumns:
            columns = OutcomeColumns.decode(data, self.batch).columns
            compared = first_round(self.numbers, self.batch) + self._bias()
            tables = self._garbled(columns, compared, self._outcomes(), OUTCOMES)
            reply = Outgoing(QUERIER, GarbledOutcomes(**vars(tables)))
            if self.batch.rule.second is not None:
                return replace(self, awaits=BallotColumns), (reply,)
            return self._ready(reply)
        columns = BallotColumns.decode(data, self.batch).columns
        compared = second_round(self._outcomes(), self.batch, constants=False)
        tables = self._garbled(columns, compared, self._ballots(), BALLOTS)
        return self._ready(Outgoing(QUERIER, GarbledBallots(**vars(tables))))

    def _chosen(self, point: Bytes) -> tuple[StrictSiteBatch, Outbox]:
        points, keys = choose_keys(point, secret_choices(self._secret()), self.seed)
        state = replace(self, keys=keys, row_hash=RowHash.of(point, points), awaits=FeatureColumns)
        return state, (Outgoing(QUERIER, TransferChoices(points)),)

    def _multiplied(
        self, columns: Bytes, keys: Bytes, row_hash: RowHash
    ) -> tuple[StrictSiteBatch, Outbox]:
        lengths, secret = sizes_of(self.batch).lengths, self._secret()
        rows = extended_rows(keys, secret, columns, FEATURES)
        hidden, numbers = site_products(
            rows,
            secret,
            self.plain.model.weights,
            row_hash,
            lengths["high bits"],
            lengths["top bits"],
        )
        message = HiddenProducts(hidden.low, hidden.high, hidden.top)
        return replace(self, numbers=numbers, awaits=OutcomeColumns), (Outgoing(QUERIER, message),)

    def _garbled(self, columns: Bytes, numbers: Ring, shares: Ring, purpose: int) -> GarbledTables:
        """Comparisons of its numbers, of whose outcomes it has these shares."""
        if self.keys is None or self.row_hash is None:
            raise unexpected(QUERIER, self.awaited)
        sizes, secret = sizes_of(self.batch), self._secret()
        bits = sizes.outcome_bits if purpose == OUTCOMES else sizes.ballot_bits
        labels = wire_labels(extended_rows(self.keys, secret, columns, purpose), numbers.size, bits)
        tables = garble_signs(
            numbers.ravel(), shares.ravel(), labels, secret, self.row_hash, purpose
        )
        return tables.shaped(*numbers.shape)

    def _ready(self, reply: Outgoing) -> tuple[StrictSiteBatch, Outbox]:
        """Keys have served."""
        state = replace(self, keys=None, row_hash=None, numbers=None, awaits=None)
        return state, (reply, Outgoing(GUARDIAN, SiteReady()))

    def _secret(self) -> Words:
        """Which label of a wire has which colour needs its lowest bit to be 1."""
        drawn = KeyStream(self.seed, "secret").words(2).copy()
        drawn[0] |= np.uint64(1)
        return drawn

    def _outcomes(self) -> Ring:
        return KeyStream(self.seed, "outcomes").ring(self.batch.queries, self.batch.rule.outcomes)

    def _ballots(self) -> Ring:
        return KeyStream(self.seed, "ballots").ring(
            self.batch.queries, self.batch.rule.compared_next
        )

    def _bias(self) -> Ring:
        return to_ring(sizes_of(self.batch).bounded_bias(self.plain.model.bias))


def begin_strict_site(
    plain: SiteBatch, outbox: Outbox, *, rng: BitSource
) -> tuple[StrictSiteBatch, Outbox]:
    """A site begins a batch in strict mode.

    Args:
      plain: from `begin_site`; likewise the next one.
      outbox: the last comparison's keys, where it is the site's turn.
      rng: source of all that it draws with who asks.
    """
    state = StrictSiteBatch(plain=plain, seed=fresh_seed(rng))
    return state, (*outbox, Outgoing(QUERIER, SiteBegins()))
