"""What every task of a campaign is handed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpal.config.campaign import CampaignConfig
from dpal.data.sources import Source
from dpal.errors import ParameterError
from dpal.files.artifacts import PhaseFolder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import CertifiedPlan, Phase, Plan
from dpal.planning.campaign_spec import SelectionMode
from dpal.runs.devices import device_of
from dpal.runs.plan_new_campaign import CampaignStart
from dpal.runs.run import ConfiguredRun


@dataclass(frozen=True, kw_only=True)
class Campaign(ConfiguredRun[Plan]):
    """A certified campaign and where its things are.

    Attributes:
      config: what the person wrote.
      pool: private records.
      validation: records that figures are measured on; public, or protected by the plan.
      class_names: names in class order; empty when the data has none.
      start: its plan, what it holds of a data set, and what it starts from.
      acting_for: in whose name the ledger is written; None where this process leads.
    """

    kind, noun = "campaign", "campaign"

    config: CampaignConfig
    pool: Source
    validation: Source
    class_names: tuple[str, ...]
    start: CampaignStart
    acting_for: str | None = None

    @property
    def certified(self) -> CertifiedPlan:  # type: ignore[override]
        """The plan and its proof."""
        return self.start.certified

    @property
    def plan(self) -> Plan:
        """What every step obeys."""
        return self.start.plan

    @property
    def dataset(self) -> str | None:
        """The registered data set that it is on; None for none."""
        return self.config.data.dataset

    @property
    def start_from(self) -> str | None:
        """The finished campaign that it goes on from; None for none."""
        return self.config.start_from

    @property
    def protected_records(self) -> Source | None:
        """The validation set, where the plan protects it."""
        return None if self.plan.figures is None else self.validation

    @property
    def sources(self) -> tuple[Source, ...]:
        """All records that it reads."""
        return self.pool, self.validation

    @property
    def shows_progress(self) -> bool:
        """Whether others may see within a phase how far it is.

        Not in hidden selection: how long a training takes follows how many labels it has.
        """
        return self.plan.spec.selection is not SelectionMode.HIDDEN

    @property
    def public_records(self) -> Source:
        """The validation set, for what reads public records as often as it likes.

        Raises:
          ParameterError: its records are protected, and leave by `measure` alone.
        """
        if self.plan.figures is not None:
            raise ParameterError(
                f"records of {self.validation.name} are protected: nothing but noisy figures is "
                "made of them"
            )
        return self.validation

    @property
    def group_column(self) -> str | None:
        """Says who belongs together, where groups are the unit: of settings, or of the data set."""
        groups, data = self.plan.spec.groups, self.start.data
        if groups is not None:
            return groups.column
        return None if data is None else data.limit.group_column

    @property
    def device(self) -> str:
        """Where models run here; a worker that trains for a campaign has what settings name."""
        return device_of(self.runtime, leads=self.acting_for is None)

    def files(self, phase: Phase) -> PhaseFolder:
        """The files of one phase."""
        return self.folder.phase(phase.index)

    def _opened(self, ledger: CampaignLedger) -> CampaignLedger:
        return replace(ledger, acting_for=self.acting_for)
