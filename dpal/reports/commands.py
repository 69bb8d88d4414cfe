"""The commands by which a certificate is checked, and what they do and do not prove."""

from __future__ import annotations

import shlex
from pathlib import Path

from dpal.files.artifacts import CampaignFolder

ELSEWHERE = "dpal verify certificate.json --ledger LEDGER --model MODEL --key KEY"
ELSEWHERE_WITHOUT_MODEL = "dpal verify certificate.json --ledger LEDGER --key KEY"

# What a reader may believe of a certificate that was verified, for pages and reports.
TRUSTED = (
    "Nobody needs to trust the planning or the arithmetic: every epsilon is computed again from "
    "the ledger's entries, by another accountant. What is trusted is the holder of the key that "
    "signed: that they ran this program on these records, and that the ledger holds all that was "
    "released."
)


def verify_here(folder: CampaignFolder, key: str, model: Path | None = None) -> str:
    """The command that works on the machine that made a certificate.

    Args:
      folder: of the campaign, improvement or account.
      key: what --key is given there.
      model: to be opened as well; None for no model.
    """
    place = str(folder.root)
    words = ["dpal", "verify", place, "--ledger", place]
    words += ["--model", str(model)] if model is not None else []
    return shlex.join([*words, "--key", key])
