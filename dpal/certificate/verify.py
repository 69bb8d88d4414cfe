"""Verifying a certificate of any kind: everything is computed again, no planner is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dpal.certificate.check_against import Model, PoolCommitment
from dpal.certificate.check_outcome import Check
from dpal.certificate.kinds.campaign import CAMPAIGN
from dpal.certificate.kinds.certificate_kind import CertificateKind
from dpal.certificate.kinds.improvement import IMPROVEMENT
from dpal.certificate.kinds.release_list import LISTED
from dpal.certificate.kinds.voting import VOTING
from dpal.certificate.read_and_seal import kind_name
from dpal.ledger.entries import Entry

KINDS: Final[Mapping[str, CertificateKind[Any]]] = {
    kind.name: kind for kind in (CAMPAIGN, IMPROVEMENT, VOTING, LISTED)
}


def certificate_kind(document: Mapping[str, Any]) -> CertificateKind[Any]:
    """The kind that a certificate says to be of; of an unknown one, a campaign's."""
    return KINDS.get(kind_name(document), CAMPAIGN)


def verify_certificate(
    document: Mapping[str, Any],
    *,
    ledger: Sequence[Entry] | None = None,
    model: Model | None = None,
    pool: PoolCommitment | None = None,
    no_pool: str = "no pool given (--data)",
) -> list[Check]:
    """Checks a certificate of whatever kind it says to be; see `CertificateKind.verify`.

    One of an unknown kind is checked as a campaign's, which says no kind, and fails.
    """
    kind = certificate_kind(document)
    return kind.verify(document, ledger=ledger, model=model, pool=pool, no_pool=no_pool)
