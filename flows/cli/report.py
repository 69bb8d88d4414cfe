"""`dpal report`: writes the report of a run again."""

from __future__ import annotations

from flows.cli.folder_arguments import CampaignDir, campaign_folder
from flows.cli.terminal import out

EXAMPLE = "Example: dpal report artifacts/digits"


def report(folder: CampaignDir) -> None:
    """Write the report of a run again from its files, and print its path.

    Of an account of teachers (dpal vote) it shows what was released, and what that cost.
    """
    from dpal.runs.make_report import make_report

    place = campaign_folder(folder)
    out.print(str(make_report(place)))
