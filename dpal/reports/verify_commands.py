"""The commands by which a certificate is checked, and what they do and do not prove."""

from __future__ import annotations

import shlex
from pathlib import Path

from dpal.files.artifacts import CampaignFolder

ELSEWHERE = "dpal verify certificate.json --ledger LEDGER --model MODEL --key KEY"

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


def check_commands(run: str, *, certificate: str | None, has_model: bool) -> list[tuple[str, str]]:
    """Commands that check a run wherever its files are, and what each does.

    Args:
      run: its name.
      certificate: its digest, once it has one.
      has_model: whether a model is verified with it.
    """
    ledger = (
        f"dpal ledger verify {run}",
        "The ledger is whole and the newest known here, and the files that were committed are its "
        "own.",
    )
    elsewhere = ELSEWHERE if has_model else ELSEWHERE.replace(" --model MODEL", "")
    opened = ", the model is opened" if has_model else ""
    says = (
        f"On any machine every epsilon is computed again, by another accountant{opened}, and the "
        "signature is compared with the data owner's public key, which they print with "
        "`dpal ledger key`. The digest below must be the one that it names."
    )
    return [ledger, *([(elsewhere, says)] if certificate else [])]
