"""What reading commands are asked for: which folder, laid out how."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpal.errors import DataError
from dpal.files.artifacts import LEDGER, RECORD, CampaignFolder

CampaignDir = Annotated[
    Path, typer.Argument(metavar="DIR", help="Campaign folder, such as artifacts/digits.")
]
LedgerDir = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Campaign folder, or the folder of all campaigns."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

_DEFAULT = Path("artifacts")


class By(StrEnum):
    """How the ledger is laid out."""

    COHORT = "cohort"
    TIME = "time"
    DATA = "data"


def campaign_folder(path: Path) -> CampaignFolder:
    """The campaign's folder that a path, or a bare name, means.

    Raises:
      DataError: there is none.
    """
    for candidate in (path, _DEFAULT / path):
        if (candidate / RECORD).is_file():
            return CampaignFolder(candidate)
    raise DataError(f"{path} is not a campaign folder; `dpal status` lists the ones there are")


def campaign_or_all(path: Path, ledger: str | None = None) -> CampaignFolder | Path:
    """The campaign's folder that a path means, or the folder of campaigns that it is.

    Args:
      path: what a person named.
      ledger: URL of the ledger, if it was named, too; the folder may be empty then.

    Raises:
      DataError: it is neither.
    """
    here = ledger is not None or (path / LEDGER).is_file()
    if not (path / RECORD).is_file() and (here or any(path.glob(f"*/{RECORD}"))):
        return path
    return campaign_folder(path)
