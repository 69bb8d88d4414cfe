"""All parties of a batch in one process, their messages encoded, decoded and kept."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpal.capc.begin_by_mode import start_guardian, start_querier, start_site
from dpal.capc.party_step_helpers import Outbox
from dpal.capc.precomputed_shares import HeldShares, SharedQueries
from dpal.capc.terms import GUARDIAN, QUERIER, QueryBatch, SiteModel, Terms, batch_of
from dpal.randomness import secure


@dataclass
class Vote:
    """One batch from beginning to end.

    Attributes:
      parties: their last states, by name.
      wire: every message: sender, receiver, the message, its bytes.
    """

    batch: QueryBatch
    parties: dict[str, Any]
    wire: list[tuple[str, str, Any, bytes]] = field(default_factory=list)

    @property
    def answers(self) -> np.ndarray:
        return self.parties[QUERIER].answers

    def sent(self, kind: type, receiver: str) -> list[Any]:
        return [message for _, to, message, _ in self.wire if to == receiver
                and type(message) is kind]  # fmt: skip


def queries(rng: np.random.Generator, count: int, features: int) -> np.ndarray:
    return rng.integers(-128, 128, (count, features), dtype=np.int8)


def terms_of(
    sites: int = 5, labels: int = 4, features: int = 16, queries: int = 6, **more: Any
) -> Terms:
    names = tuple(f"site-{number}" for number in range(1, sites + 1))
    return Terms(sites=names, labels=labels, features=features, queries=queries,
                 **{"sigma": 2.0, "batches": 50, **more})  # fmt: skip


def random_models(terms: Terms, rng: np.random.Generator) -> dict[str, SiteModel]:
    return {
        site: SiteModel(
            rng.integers(-128, 128, (terms.labels, terms.features), dtype=np.int8),
            rng.integers(-20_000, 20_000, terms.labels),
        )
        for site in terms.sites
    }


def pair_secrets(names: Sequence[str]) -> dict[str, dict[str, bytes]]:
    secrets: dict[str, dict[str, bytes]] = defaultdict(dict)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            secrets[name][other] = secrets[other][name] = secure().words(4).tobytes()
    return secrets


def hold_vote(
    terms: Terms,
    models: Mapping[str, SiteModel] | Mapping[str, Mapping[bytes, HeldShares]],
    features: np.ndarray | SharedQueries,
    noise: Mapping[str, np.ndarray] | None = None,
    *,
    number: int = 1,
    live: tuple[str, ...] | None = None,
    order: np.random.Generator | None = None,
) -> Vote:
    """Runs a batch; without `noise` there is none. Channels are emptied in the order given."""
    batch = batch_of(terms, number, len(features), live or terms.sites)
    secrets = pair_secrets([QUERIER, *batch.sites])
    nothing = np.zeros((batch.queries, batch.rule.counts), dtype=np.int64)
    vote = Vote(batch, {QUERIER: start_querier(batch, features, secrets[QUERIER], rng=secure())})
    channels: dict[tuple[str, str], deque] = defaultdict(deque)

    def post(sender: str, outbox: Outbox) -> None:
        for outgoing in outbox:
            data = outgoing.message.encode(batch)
            vote.wire.append((sender, outgoing.receiver, outgoing.message, data))
            channels[sender, outgoing.receiver].append(data)

    for site in batch.sites:
        own = nothing if noise is None else noise[site]
        state, outbox = start_site(batch, site, models[site], own, secrets[site], rng=secure())
        vote.parties[site] = state
        post(site, outbox)
    vote.parties[GUARDIAN], outbox = start_guardian(batch, rng=secure())
    post(GUARDIAN, outbox)
    while waiting := [channel for channel, queue in channels.items() if queue]:
        chosen = waiting[0 if order is None else int(order.integers(len(waiting)))]
        sender, receiver = chosen
        data = channels[chosen].popleft()
        vote.parties[receiver], outbox = vote.parties[receiver].receive(sender, data)
        post(receiver, outbox)
    return vote


def plain_votes(
    models: Mapping[str, SiteModel], sites: Sequence[str], features: np.ndarray
) -> np.ndarray:
    """(queries, labels) how many sites say yes."""
    return np.sum([numbers_of(models[site], features) >= 0 for site in sites], axis=0)


def numbers_of(model: SiteModel, features: np.ndarray) -> np.ndarray:
    """(queries, labels) what a site's heads say."""
    return np.asarray(features.astype(np.int64) @ model.weights.astype(np.int64).T + model.bias)
