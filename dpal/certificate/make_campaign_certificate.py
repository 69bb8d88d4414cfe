"""Writing a certificate from what the ledger holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpal.certificate.compare_with_derived import Place, differences
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.campaign import CAMPAIGN
from dpal.certificate.read_and_seal import (
    FORMAT,
    FORMATS,
    INFORMATIVE,
    is_same_json,
    read_certificate,
    sealed_certificate,
    to_text,
)
from dpal.certificate.recomputed_epsilons import SAME_ENGINE
from dpal.certificate.verify import certificate_kind
from dpal.errors import CertificateError
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry


def certificate_of(
    ledger: Sequence[Entry],
    campaign: str,
    plan: dict[str, Any],
    *,
    versions: Mapping[str, str],
    form: int = FORMAT,
) -> dict[str, Any]:
    """Certifies what a campaign has released.

    Args:
      ledger: all entries of the ledger, of all campaigns.
      campaign: the campaign's name.
      plan: its plan as JSON (`dpal.canonical.plain`).
      versions: of the programs that ran it; informative.
      form: number of the format.

    Raises:
      CertificateError: the campaign holds no plan, has committed no model, or cost more than was
        promised.
      LedgerTampered: the ledger is not what once was written.
    """
    verify_chain(ledger)
    return CAMPAIGN.build(evidence_in(ledger, campaign, plan), versions=versions, form=form)


def text_to_keep(certify: Callable[[int], dict[str, Any]], text: str | None) -> str:
    """The text of a certificate: the one that is there, where it certifies the same.

    A campaign that is run again after an upgrade keeps the certificate that its model carries,
    with the versions and in the format in which it was written. Its figures may differ as far as
    `dpal verify` lets them, as processors differ in their last digits; all else must be the same.

    Args:
      certify: makes the certificate in a format.
      text: of the file that is there; None for none.
    """
    if text is not None:
        try:
            before = read_certificate(text)
        except CertificateError:
            before = {}
        form = before.get("format")
        if type(form) is int and form in FORMATS and _certifies(before, certify(form)):
            return text
    return to_text(certify(FORMAT))


def _certifies(before: dict[str, Any], follows: dict[str, Any]) -> bool:
    """Whether a certificate is whole and says what follows, by the same accountants."""
    kind = certificate_kind(before)

    def room(place: Place) -> float | None:
        return None if kind.room(place, SAME_ENGINE) is None else SAME_ENGINE

    rest = {key: value for key, value in follows.items() if key not in (*INFORMATIVE, "digest")}
    whole = is_same_json(before, sealed_certificate(before))
    return whole and not any(differences(before, rest, room))
