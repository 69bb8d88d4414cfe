"""How each party begins a batch, with a dealer or without one: states that all are used alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpal.capc.guardian import GuardianBatch, begin_guardian
from dpal.capc.party_step_helpers import Outbox
from dpal.capc.precomputed_shares import HeldShares, SharedQueries
from dpal.capc.precomputed_shares_querier import SharesQuerierBatch, begin_shares_querier
from dpal.capc.querier import QuerierBatch, begin_querier
from dpal.capc.shares_site import SharesSiteBatch, begin_shares_site
from dpal.capc.site import SiteBatch, begin_site
from dpal.capc.strict_guardian import StrictGuardianBatch, begin_strict_guardian
from dpal.capc.strict_querier import StrictQuerierBatch, begin_strict_querier
from dpal.capc.strict_site import StrictSiteBatch, begin_strict_site
from dpal.capc.terms import Features, QueryBatch, SiteModel
from dpal.randomness import BitSource

GuardianState = GuardianBatch | StrictGuardianBatch
SiteState = SiteBatch | SharesSiteBatch | StrictSiteBatch
QuerierState = QuerierBatch | SharesQuerierBatch | StrictQuerierBatch


def start_guardian(batch: QueryBatch, *, rng: BitSource) -> tuple[GuardianState, Outbox]:
    """As `begin_guardian`, in the mode of the batch."""
    if batch.is_strict:
        return begin_strict_guardian(batch), ()
    return begin_guardian(batch, rng=rng)


def start_site(
    batch: QueryBatch,
    name: str,
    model: SiteModel | Mapping[bytes, HeldShares],
    noise: NDArray[np.int64],
    secrets: Mapping[str, bytes],
    *,
    rng: BitSource,
) -> tuple[SiteState, Outbox]:
    """As `begin_site`, in the mode of the batch; a site has a model, or shares by evaluation."""
    if not isinstance(model, SiteModel):
        return begin_shares_site(batch, name, model, noise, secrets, rng=rng)
    plain, outbox = begin_site(batch, name, model, noise, secrets, rng=rng)
    return begin_strict_site(plain, outbox, rng=rng) if batch.is_strict else (plain, outbox)


def start_querier(
    batch: QueryBatch,
    queries: Features | SharedQueries,
    secrets: Mapping[str, bytes],
    *,
    rng: BitSource,
) -> QuerierState:
    """As `begin_querier`, in the mode of the batch."""
    if isinstance(queries, SharedQueries):
        return begin_shares_querier(batch, queries, secrets)
    plain = begin_querier(batch, queries, secrets)
    return begin_strict_querier(plain, rng=rng) if batch.is_strict else plain
