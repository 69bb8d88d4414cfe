"""What every task of a campaign is handed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dpal.config.campaign import CampaignConfig
from dpal.data.catalog import Source
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.ledger.reservations import CampaignLedger
from dpal.planning.plan import CertifiedPlan, Phase, Plan
from dpal.runs.campaign_start import Start
from dpal.runs.kinds import folder_of
from dpal.runs.open_ledger import open_ledger
from dpal.runs.store_upload import open_campaign


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A certified campaign and where its things are.

    Attributes:
      config: what the person wrote.
      pool: private records.
      validation: public records.
      class_names: names in class order; empty when the data has none.
      start: its plan, what it holds of a data set, and what it starts from.
      acting_for: in whose name the ledger is written; None where this process leads.
    """

    config: CampaignConfig
    pool: Source
    validation: Source
    class_names: tuple[str, ...]
    start: Start
    acting_for: str | None = None

    @property
    def certified(self) -> CertifiedPlan:
        """The plan and its proof."""
        return self.start.certified

    @property
    def plan(self) -> Plan:
        """The plan that every task obeys."""
        return self.certified.plan

    @property
    def folder(self) -> CampaignFolder:
        """The campaign's files."""
        return folder_of(self.config)

    def files(self, phase: Phase) -> PhaseFolder:
        """The files of one phase."""
        return self.folder.phase(phase.index)

    @contextmanager
    def ledger(self) -> Iterator[CampaignLedger]:
        """Opens the campaign's ledger for the length of a block."""
        store = open_ledger(self.config.runtime)
        try:
            yield replace(open_campaign(self.config, store), acting_for=self.acting_for)
        finally:
            store.close()
