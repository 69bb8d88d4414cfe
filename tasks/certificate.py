"""The certificate of a finished campaign."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prefect.cache_policies import NO_CACHE

from dpal.canonical import plain
from dpal.certificate.document import read_certificate
from dpal.certificate.write import certificate_of, unless_known
from dpal.errors import CertificateError
from dpal.persist import write_text
from tasks.boundary import task
from tasks.context import Campaign, say

_PROGRAMS = ("dpal", "dp-accounting", "numpy", "scipy", "torch", "opacus", "cryptography")


@task(cache_policy=NO_CACHE)
def certify(campaign: Campaign) -> None:
    """Writes certificate.json from what the ledger holds, once every release is committed."""
    with campaign.ledger() as ledger:
        entries = ledger.store.entries()
    path = campaign.folder.certificate
    written = certificate_of(
        entries, campaign.config.name, plain(campaign.plan), versions=program_versions()
    )
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    text = unless_known(written, before)
    if text != before:
        write_text(path, text)
    say(f"certificate: {path}")


def certificate_in(campaign: Campaign) -> dict[str, Any]:
    """The campaign's certificate.

    Raises:
      CertificateError: it is missing or cannot be read.
    """
    path = campaign.folder.certificate
    if not path.is_file():
        raise CertificateError(
            f"{path} is missing; run the same `dpal run` again, it writes it from the ledger"
        )
    return read_certificate(path.read_text(encoding="utf-8"))


def program_versions() -> dict[str, str]:
    """Versions of the programs that ran a campaign; informative."""
    found = {"python": platform.python_version()}
    for name in _PROGRAMS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
