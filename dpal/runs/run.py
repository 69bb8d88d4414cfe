"""A run of any kind: a certified plan, its part of the ledger, its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from dpal.config.runtime import RunConfig, RuntimeConfig
from dpal.data.sources import Source
from dpal.errors import LedgerMissing
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import sweep
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.entries import Entry
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.plan_interface import Certified, RunPlan
from dpal.reports.report import Table
from dpal.runs.open_ledger import commit_to, open_ledger
from dpal.runs.store_upload import open_run_ledger

P = TypeVar("P", bound=RunPlan)


class Run(ABC, Generic[P]):
    """A certified plan and where its things are.

    Attributes:
      certified: the plan and its proof.
      runtime: where ledger and files are.
      kind: as settings say it.
      noun: what a person calls such a run.
    """

    certified: Certified[P]
    runtime: RuntimeConfig
    kind: ClassVar[str]
    noun: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """In the ledger, and of the folder."""

    @property
    def title(self) -> str:
        """What pages call it."""
        return f"{self.noun.capitalize()} {self.name}"

    @property
    def plan(self) -> P:
        """What every step obeys."""
        return self.certified.plan

    @property
    def dataset(self) -> str | None:
        """The registered data set that it is on; None for none."""
        return None

    @property
    def start_from(self) -> str | None:
        """The finished run that it goes on from; None for none."""
        return None

    @property
    def protected_records(self) -> Source | None:
        """Records that noisy figures are measured on; None where these are public, or none."""
        return None

    @property
    def folder(self) -> CampaignFolder:
        """The run's files."""
        return CampaignFolder(self.runtime.artifacts / self.name)

    @contextmanager
    def ledger(self) -> Iterator[CampaignLedger]:
        """Opens the run's part of the ledger for the length of a block."""
        with closing(open_ledger(self.runtime)) as store:
            yield self._opened(open_run_ledger(self.name, self.runtime, store))

    def is_held(self) -> bool:
        """Whether the ledger knows the run; makes no ledger where there is none."""
        try:
            store = open_ledger(self.runtime, create=False)
        except LedgerMissing:
            return False
        with closing(store):
            return open_run_ledger(self.name, self.runtime, store).identity is not None

    def known_entries(self, *, newest: bool = False) -> list[Entry]:
        """All entries of the ledger, of all campaigns; none where there is no ledger.

        Args:
          newest: whether it must be the newest copy of the ledger that is known here.
        """
        try:
            opened = open_ledger(self.runtime, create=False)
        except LedgerMissing:  # nothing was released
            return []
        with closing(opened) as store:
            return store.verified() if newest else store.entries()

    def plan_tables(self) -> Sequence[Table]:
        """The plan, for people."""
        rows = tuple(
            (release.name, ", ".join(type(charge.event).__name__ for charge in release.charges))
            for release in self.plan.releases()
        )
        return [Table("What may be released", ("release", "charged as"), rows)]

    def plan_words(self) -> Sequence[str]:
        """What a person should know of the plan beside its tables."""
        return ()

    def plan_record(self) -> Mapping[str, Any]:
        """The same for programs, beside the plan's summary."""
        return {}

    def released(self) -> list[Path]:
        """Folders of what was released, in order; those with a manifest are phases."""
        return [
            self.folder.phase(number).root for number in range(len(self.folder.finished_phases()))
        ]

    def _opened(self, ledger: CampaignLedger) -> CampaignLedger:
        """What is peculiar to this kind about a ledger that was just opened."""
        return ledger


class ConfiguredRun(Run[P]):
    """A run of settings, which say its name and where its things are.

    Attributes:
      config: what the person wrote.
    """

    config: RunConfig

    @property
    def name(self) -> str:
        """In the ledger, and of the folder."""
        return self.config.name

    @property
    def runtime(self) -> RuntimeConfig:  # type: ignore[override]
        """Where ledger and files are."""
        return self.config.runtime

    @property
    def device(self) -> str:
        """Where models run here."""
        from dpal.runs.devices import device_of  # torch takes a second to import

        return device_of(self.runtime)


def hold(
    run: Run[P],
    ledger: CampaignLedger,
    records: str,
    *,
    data: DataHold | None,
    compared: int | None,
    changes: str = "",
) -> None:
    """Sets the plan's worst case aside, before anything is drawn. Again, it changes nothing.

    Args:
      run: what is held. Its folder is claimed.
      ledger: the run's, open.
      records: digest of the private files, or of ballots; it is kept under salt.
      data: what the run takes of a registered data set; None for none.
      compared: with how many parts of data sets the records were compared, from
        `require_unregistered`. None, which compares nothing, only where `data` counts all of
        them, the run has begun, or what is held is of ballots.
      changes: what is another than when the run began, for the refusal.

    Raises:
      LedgerError: another plan is held under this name, or files of the run are gone.
      BudgetExceeded, DataBudgetExceeded: there is not that much left. Nothing was held.
    """
    plan = run.plan
    sweep(run.folder.root)
    ledger.hold(
        plan.target,
        plan.digest,
        commit_to(ledger, run.folder, records, called=run.noun),
        plan.releases(),
        accountant=plan.accountant,
        data=data,
        before=plan.before,
        compared=compared,
        changes=changes,
    )
