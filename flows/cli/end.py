"""`dpal end`: ends a run before its plan is done."""

from __future__ import annotations

from dpal.runs.kinds import recorded_kind
from flows.cli.folder_arguments import CampaignDir, campaign_folder
from flows.cli.terminal import out

EXAMPLE = "Example: dpal end artifacts/digits"


def end_command(folder: CampaignDir) -> None:
    """End a run before its plan is done; what it held of a data set and did not use flows back.

    Less of it does where selected ids were shown: who saw them chose when to end it.
    """
    from dpal.runs.execute import end

    ended = campaign_folder(folder)
    end(ended)
    called = recorded_kind(ended).in_titles
    out.print(f"{called} {ended.name} is ended; it can release nothing more", markup=False)
