"""Runs whose plan is a list of releases: what a kind of one's own needs beside its releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from dpal.accounting.events import Release
from dpal.canonical import plain
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.release_list import LISTED
from dpal.data.sources import Source
from dpal.planning.release_list import CertifiedList, ListedPlan, ListedSpec, certify_list
from dpal.privacy import PrivacyTarget
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.kinds import kind_of
from dpal.runs.plan_new_campaign import require_unregistered
from dpal.runs.run import ConfiguredRun, hold
from dpal.runs.use_cases import C, UseCases
from dpal.runs.write_certificate import keep_certificate, program_versions


@dataclass(frozen=True, kw_only=True)
class ListedRun(ConfiguredRun[ListedPlan], Generic[C]):
    """A run of a kind of one's own.

    Attributes:
      config: what the person wrote.
      certified: the list of releases and its proof.
      source: the private records.
    """

    noun = "run"

    config: C
    certified: CertifiedList
    source: Source

    @classmethod
    def planned(
        cls,
        config: C,
        target: PrivacyTarget,
        releases: Sequence[Release],
        *,
        source: Source,
        pool_size: int,
        **settings: Any,
    ) -> ListedRun[C]:
        """Certifies a run.

        Args:
          config: its settings.
          target: what it promises.
          releases: all that it releases, in order.
          source: the private records; those of a registered data set are refused.
          pool_size: how many units they hold; public.
          settings: further public numbers that decide it.

        Raises:
          PlanRejected: the releases cost more than is promised.
        """
        spec = ListedSpec(
            name=config.name, target=target, settings={"pool_size": pool_size, **settings}
        )
        certified = certify_list(ListedPlan.of(spec, releases))
        return cls(config=config, certified=certified, source=source)

    @property
    def kind(self) -> str:  # type: ignore[override]
        """As settings say it."""
        return kind_of(self.config).name

    @property
    def model(self) -> Path:
        """Where a run that releases weights keeps them."""
        return self.folder.phase(0).model

    def released(self) -> list[Path]:
        """The folder of what was released."""
        return [self.model.parent]

    def release_once(self, draw: Callable[[], None]) -> None:
        """Reserves the one release of the plan, draws it into `model`, commits it; all once.

        Raises:
          BudgetExceeded: the promise does not cover it. Nothing was drawn.
        """
        (release,) = self.plan.releases()
        with self.ledger() as ledger:
            ledger.release_once(release, draw, inputs=[], artifacts=[self.model])

    def begin(self) -> None:
        """Holds the plan and writes what later commands need to know; again, nothing changes.

        Raises:
          RecordsRegistered: the records belong to a data set, whose limit would not count this.
        """
        with self.ledger() as ledger:
            compared = None  # a run that has begun was compared when it began
            if ledger.identity is None:
                compared = require_unregistered(self.runtime, self.source)
            hold(self, ledger, self.source.files_digest, data=None, compared=compared)
        self.folder.write_record(
            {
                "kind": self.kind,
                "name": self.name,
                "plan": self.certified.summary(),
                "config": with_absolute_paths(self.config).model_dump(mode="json"),
            }
        )


class ListedRuns(UseCases[C, ListedRun[C]]):
    """What runs of a kind of one's own share: how they are certified, and all that any run has."""

    def certify(self, run: ListedRun[C]) -> None:
        """Writes certificate.json from what the ledger holds."""
        with run.ledger() as ledger:
            entries = ledger.store.verified()
        evidence, versions = evidence_in(entries, run.name, plain(run.plan)), program_versions()

        def certified(form: int) -> dict[str, Any]:
            return LISTED.build(evidence, versions=versions, form=form)

        keep_certificate(run.folder, certified, run.runtime)
