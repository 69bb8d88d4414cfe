"""Writing a certificate from what the ledger holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpal.certificate.document import (
    FORMAT,
    FORMATS,
    read_certificate,
    same,
    sealed_certificate,
    to_text,
)
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.campaign import CAMPAIGN
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
    with the versions and in the format in which it was written.

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
        if type(form) is int and form in FORMATS:
            again = sealed_certificate({**certify(form), "versions": before.get("versions")})
            if same(before, again):
                return text
    return to_text(certify(FORMAT))
