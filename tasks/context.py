"""What every task of a campaign is handed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from dpal.artifacts import CampaignFolder, PhaseFolder
from dpal.config import CampaignConfig
from dpal.data.catalog import Source
from dpal.ledger.reservations import CampaignLedger
from dpal.planning.plan import CertifiedPlan, Phase, Plan
from tasks.opening import open_ledger
from tasks.standing import Start


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A certified campaign and where its things are.

    Attributes:
      config: what the person wrote.
      pool: private records.
      validation: public records.
      class_names: names in class order; empty when the data has none.
      start: its plan, what it holds of a data set, and what it starts from.
    """

    config: CampaignConfig
    pool: Source
    validation: Source
    class_names: tuple[str, ...]
    start: Start

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
            yield CampaignLedger(store, self.config.name, self.folder.root)
        finally:
            store.close()


def folder_of(config: CampaignConfig) -> CampaignFolder:
    """The folder of the campaign that a configuration names."""
    return CampaignFolder(config.runtime.artifacts / config.name)


def say(message: str) -> None:
    """Tells a person what happens, in the terminal and on the Prefect page. Public facts only."""
    logging.getLogger("dpal").info(message)
    with suppress(MissingContextError):
        get_run_logger().info(message)
