"""Verifying a certificate: everything is recomputed, nothing that planned it is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.certificate.arithmetic import check_figures
from dpal.certificate.checks import Check, Outcome, refuted, unchecked
from dpal.certificate.data_set import check_shares, check_together
from dpal.certificate.derive import Sources, derived
from dpal.certificate.document import entry_of
from dpal.certificate.inside import (
    check_entries,
    check_plan,
    check_releases,
    check_seal,
    check_statements,
)
from dpal.certificate.outside import Model, Pool, check_ledger, check_model, check_pool
from dpal.errors import DpalError
from dpal.ledger.entries import Entry

# What a value of the wrong type or a missing key leads to. A certificate is a stranger's file.
MALFORMED = (DpalError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


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
        sources = _sources(document)
        checks = [check_entries(sources, document["ledger"]), check_releases(sources)]
        checks += [check_plan(sources)]
    except MALFORMED as error:
        return [seal, _unreadable("ledger entries", error)]
    if refuted(checks):
        reason = "the entries are not sound, so there is nothing to add up"
        return [seal, *checks, unchecked("epsilon", reason)]
    try:
        follows = derived(sources)
        checks += check_statements(document, follows)
    except MALFORMED as error:
        return [seal, *checks, _unreadable("statements", error)]
    try:
        checks += check_figures(document, follows, sources)
        if follows["data"] is not None:
            checks.append(check_shares(sources))
    except MALFORMED as error:
        checks.append(_unreadable("epsilon", error))
    sealed = {**follows, "digest": document.get("digest")}
    checks += [check_ledger(sources, ledger), check_model(sealed, model)]
    checks += [check_pool(follows, pool, no_pool), check_together(sources, ledger)]
    return [seal, *checks]


def _sources(document: Mapping[str, Any]) -> Sources:
    ledger = document["ledger"]
    opening = ledger["opening"]
    sources = Sources(
        entries=[entry_of(record) for record in ledger["entries"]],
        opening=None if opening is None else entry_of(opening),
        identity=ledger["identity"],
        plan=document["plan"]["content"],
    )
    _ = sources.hold  # there must be one
    return sources


def _unreadable(name: str, error: Exception) -> Check:
    said = str(error) if isinstance(error, DpalError) else f"{type(error).__name__}: {error}"
    return Check(
        name=name, outcome=Outcome.FAILED, detail=f"not what a certificate has there ({said})"
    )
