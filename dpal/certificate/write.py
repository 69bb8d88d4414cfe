"""Writing a certificate from what the ledger holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpal.certificate.derive import Sources, derived
from dpal.certificate.document import read_certificate, same, sealed_certificate, to_text
from dpal.errors import CertificateError
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry


def certificate_of(
    ledger: Sequence[Entry], campaign: str, plan: dict[str, Any], *, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Certifies what a campaign has released.

    Args:
      ledger: all entries of the ledger, of all campaigns.
      campaign: the campaign's name.
      plan: its plan as JSON (`dpal.canonical.plain`).
      versions: of the programs that ran it; informative.

    Returns:
      A sealed certificate.

    Raises:
      CertificateError: the campaign holds no plan, or has committed no model.
      LedgerTampered: the ledger is not what once was written.
    """
    verify_chain(ledger)
    own = [entry for entry in ledger if entry.campaign == campaign]
    if not own:
        raise CertificateError(f"the ledger has no entries of campaign {campaign}")
    first = ledger[0]
    sources = Sources(
        entries=own,
        opening=None if first.campaign == campaign else first,
        identity=first.digest,
        plan=plan,
    )
    content = derived(sources)
    if not all(math.isfinite(value) for value in content["epsilon"].values()):
        raise CertificateError(f"campaign {campaign} has no finite epsilon to certify")
    return sealed_certificate({**content, "versions": dict(versions)})


def unless_known(certificate: dict[str, Any], text: str | None) -> str:
    """The text to keep: what is there, if it certifies the same with other versions.

    A campaign that is run again after an upgrade keeps the certificate that its model
    carries.
    """
    if text is not None:
        try:
            before = read_certificate(text)
        except CertificateError:
            before = {}
        again = sealed_certificate({**certificate, "versions": before.get("versions")})
        if same(before, again):
            return text
    return to_text(certificate)
