"""The guardian's part in a batch: deals masks and keys, adds up votes that it cannot read.

It learns nothing: what sites send it is padded, and what it opens with who asks is masked by a
site. Where noisy counts are released it opens nothing: who asks takes the pads off. It must not
collude: with who asks it would find the sites' weights, with a site the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dpal.capc.key_streams import KeyStream, fresh_seed
from dpal.capc.messages import (
    GuardianAnswer,
    LastDeal,
    MaskedMargin,
    PaddedCounts,
    PaddedVotes,
    QuerierBallotDeal,
    QuerierDeal,
    SiteBallotDeal,
    SiteDeal,
    dealt_fields,
)
from dpal.capc.party_step_helpers import Outbox, Outgoing, unexpected
from dpal.capc.ring import Ring, ring_product
from dpal.capc.shared_signs import SignCorrections, SignKeys, deal_signs, sign_keys
from dpal.capc.terms import QUERIER, QueryBatch
from dpal.randomness import BitSource


@dataclass(frozen=True, eq=False, kw_only=True)
class GuardianBatch:
    """Where the guardian stands.

    Attributes:
      batch: what is asked.
      total: (queries, counts) sum of what sites sent.
      voted: sites that did.
      last_deal: for the noisy majorities, once it came; none where counts are released.
      margin: from who asks, once it came; likewise.
      is_done: whether its answer was given.
    """

    batch: QueryBatch
    total: Ring
    voted: frozenset[str] = field(default_factory=frozenset)
    last_deal: LastDeal | None = None
    margin: MaskedMargin | None = None
    is_done: bool = False

    @property
    def awaited(self) -> frozenset[str]:
        """Parties whose messages must come before its answer."""
        missing = set(self.batch.sites) - self.voted
        compares = not self.batch.tells_counts
        if compares and self.last_deal is None:
            missing.add(self.batch.dealer)
        if compares and self.margin is None:
            missing.add(QUERIER)
        return frozenset() if self.is_done else frozenset(missing)

    def receive(self, sender: str, data: bytes) -> tuple[GuardianBatch, Outbox]:
        """What it becomes by a message, and what it sends: its answer after the last one.

        Raises:
          ProtocolError: the message cannot come now.
        """
        return _with_answer(self._after(sender, data))

    def _after(self, sender: str, data: bytes) -> GuardianBatch:
        if self.is_done:
            raise unexpected(sender, self.awaited)
        compares = not self.batch.tells_counts
        if compares and sender == QUERIER and self.margin is None:
            return replace(self, margin=MaskedMargin.decode(data, self.batch))
        if compares and sender == self.batch.dealer and self.last_deal is None:
            return replace(self, last_deal=LastDeal.decode(data, self.batch))
        if sender in self.batch.sites and sender not in self.voted:
            votes = PaddedVotes.decode(data, self.batch).values
            return replace(self, total=self.total + votes, voted=self.voted | {sender})
        raise unexpected(sender, self.awaited)


def begin_guardian(batch: QueryBatch, *, rng: BitSource) -> tuple[GuardianBatch, Outbox]:
    """Deals a batch: to who asks, and to each site.

    Args:
      batch: what is asked; paid for before.
      rng: source of all masks and keys.
    """
    outbox = [] if batch.has_shares else _first_deals(batch, rng)
    if batch.rule.second is not None:
        outbox += _ballot_deals(batch, rng)
    total = np.zeros((batch.queries, batch.rule.counts), dtype=np.uint32)
    return GuardianBatch(batch=batch, total=total), tuple(outbox)


def _first_deals(batch: QueryBatch, rng: BitSource) -> list[Outgoing]:
    """Masks of weights and queries, and keys of the first round."""
    querier_seed, salt = fresh_seed(rng), fresh_seed(rng)
    site_seeds = {site: fresh_seed(rng) for site in batch.sites}
    query_masks = KeyStream(querier_seed, "queries").ring(batch.queries, batch.features)
    products = np.stack(
        [
            ring_product(query_masks, weight_masks(seed, batch).T) - product_shares(seed, batch)
            for seed in site_seeds.values()
        ]
    )
    shape = (batch.queries, batch.rule.outcomes)
    corrections = _corrections(querier_seed, site_seeds, salt, batch.compared)
    deal = QuerierDeal(
        **dealt_fields(querier_seed, salt, corrections, len(batch.sites), *shape),
        products=products,
    )
    outbox = []  # sites first: they can begin while the largest message is on its way
    for place, (site, seed) in enumerate(site_seeds.items()):
        own = corrections.part(place * batch.compared, (place + 1) * batch.compared)
        outbox.append(Outgoing(site, SiteDeal(**dealt_fields(seed, salt, own, *shape))))
    outbox.append(Outgoing(QUERIER, deal))
    return outbox


def _ballot_deals(batch: QueryBatch, rng: BitSource) -> list[Outgoing]:
    """Keys of the second round, which have nothing in common with those of the first."""
    querier_seed, salt = fresh_seed(rng), fresh_seed(rng)
    site_seeds = {site: fresh_seed(rng) for site in batch.sites}
    shape = (batch.queries, batch.rule.compared_next)
    each = batch.queries * batch.rule.compared_next
    corrections = _corrections(querier_seed, site_seeds, salt, each)
    fields = dealt_fields(querier_seed, salt, corrections, len(batch.sites), *shape)
    outbox = [Outgoing(QUERIER, QuerierBallotDeal(**fields))]
    for place, (site, seed) in enumerate(site_seeds.items()):
        own = corrections.part(place * each, (place + 1) * each)
        outbox.append(Outgoing(site, SiteBallotDeal(**dealt_fields(seed, salt, own, *shape))))
    return outbox


def _corrections(
    querier_seed: bytes, site_seeds: Mapping[str, bytes], salt: bytes, each: int
) -> SignCorrections:
    """Of so many comparisons between who asks and each site, the sites one after the other."""
    first = sign_keys(querier_seed, "signs", each * len(site_seeds))
    second = [sign_keys(seed, "signs", each) for seed in site_seeds.values()]
    return deal_signs(first, _joined(second), salt)


def weight_masks(seed: bytes, batch: QueryBatch) -> Ring:
    """(labels, features) what hides a site's weights, from the seed that it is dealt."""
    return KeyStream(seed, "weights").ring(batch.labels, batch.features)


def product_shares(seed: bytes, batch: QueryBatch) -> Ring:
    """(queries, labels) the site's share of what its mask makes of the queries' masks."""
    return KeyStream(seed, "products").ring(batch.queries, batch.labels)


def _joined(keys: list[SignKeys]) -> SignKeys:
    return SignKeys(
        np.concatenate([one.masks for one in keys]),
        np.concatenate([one.roots for one in keys]),
        np.concatenate([one.tops for one in keys]),
    )


def _with_answer(state: GuardianBatch) -> tuple[GuardianBatch, Outbox]:
    """The answer, where nothing is missing."""
    deal, margin = state.last_deal, state.margin
    if state.awaited:
        return state, ()
    if state.batch.tells_counts:
        return replace(state, is_done=True), (Outgoing(QUERIER, PaddedCounts(state.total)),)
    if deal is None or margin is None:
        return state, ()
    # The margin is twice the count, less what who asks takes off its own share.
    masked = 2 * state.total + deal.keys.masks.reshape(state.total.shape)
    answer = GuardianAnswer(masked, deal.signs(masked + margin.values, 1))
    return replace(state, is_done=True), (Outgoing(QUERIER, answer),)
