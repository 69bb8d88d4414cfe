"""Verifying a certificate: everything is recomputed, nothing that planned it is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.agreement import tolerance
from dpal.certificate.arithmetic import check_figures, room_for_figures
from dpal.certificate.checks import MALFORMED, Check, refuted, unchecked, unreadable
from dpal.certificate.compare import compared
from dpal.certificate.data_set import check_shares, check_together
from dpal.certificate.derive import derived
from dpal.certificate.inside import (
    check_entries,
    check_plan,
    check_releases,
    check_seal,
    check_statements,
)
from dpal.certificate.outside import Model, Pool, check_ledger, check_model, check_pool
from dpal.certificate.sources import sources_from
from dpal.ledger.entries import Entry


def verify(
    document: Mapping[str, Any],
    *,
    ledger: Sequence[Entry] | None = None,
    model: Model | None = None,
    pool: Pool | None = None,
    no_pool: str = "no pool given (--data)",
) -> list[Check]:
    """Checks a certificate, alone and against whatever it can be held against.

    Without the ledger this proves that the certificate agrees with itself and that its
    events keep its promise; that these were all events, only the ledger can show.

    Args:
      document: from `read_certificate`.
      ledger: all entries of the ledger, of all campaigns.
      model: a model that came with it.
      pool: the pool's file.
      no_pool: why there is no `pool`.

    Returns:
      One line a check. What could not be checked says why; nothing may be inferred from it.
    """
    seal = check_seal(document)
    try:
        sources = sources_from(document)
        checks = [check_entries(sources, document["ledger"]), check_releases(sources)]
        checks += [check_plan(sources)]
    except MALFORMED as error:
        return [seal, unreadable("ledger entries", error)]
    if refuted(checks):
        reason = "the entries are not sound, so there is nothing to add up"
        return [seal, *checks, unchecked("epsilon", reason)]
    try:
        follows = derived(sources, document["format"])
        apart = tolerance(sources.releases, sources.target)
        found, figures = compared(document, follows, room_for_figures(apart))
        checks += check_statements(found, follows)
    except MALFORMED as error:
        return [seal, *checks, unreadable("statements", error)]
    try:
        checks += check_figures(document, follows, sources, figures, apart)
        if follows["data"] is not None:
            checks.append(check_shares(sources))
    except MALFORMED as error:
        checks.append(unreadable("epsilon", error))
    sealed = {**follows, "digest": document.get("digest")}
    checks += [check_ledger(sources, ledger), check_model(sealed, model)]
    checks += [check_pool(follows, pool, no_pool), check_together(sources, ledger)]
    return [seal, *checks]
