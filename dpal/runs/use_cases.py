"""What a run does between settings and certificate: what a kind must say, and what all share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditFinding, AuditReport
from dpal.certificate.sentences import statements
from dpal.config.runtime import RunConfig
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.labeling import Labeler
from dpal.ledger.release_protocol import CampaignLedger
from dpal.reports.report import Report, table
from dpal.reports.run_report import run_report
from dpal.reports.validation_figures import worthless
from dpal.reports.worth_tables import worth_in_short
from dpal.runs.audit_run import audit_report, require_held_plan
from dpal.runs.promised_and_spent import Shown, epsilon_table
from dpal.runs.read_recorded_settings import settings_that_measured
from dpal.runs.released_phase import released_figures
from dpal.runs.repeatable_training import RepeatableTraining
from dpal.runs.run import Run
from dpal.runs.run_facts import facts_of, read_run_certificate
from dpal.runs.sweeps import Member, renamed, write_any_sweep
from dpal.runs.tracked_facts import Tracked

C = TypeVar("C", bound=RunConfig)
R = TypeVar("R", bound=Run[Any])


class UseCases(ABC, Generic[C, R]):
    """What runs of one kind do, step by step; `C` are their settings, `R` is such a run.

    Every step may be called again after a crash, and changes nothing where it was done.

    Attributes:
      has_model: whether its runs release a model.
      may_be_free: whether a run may release nothing itself, so that no ledger knows it.
      trainings: without noise, which workers of `runtime.training_pool` may do.
    """

    has_model = True
    may_be_free = False
    trainings: Sequence[RepeatableTraining[R]] = ()

    @abstractmethod
    def plan(self, config: C) -> R:
        """Looks at the data and certifies a plan. Releases nothing, writes nothing."""

    def prepare(self, config: C) -> R:
        """The same, at the start of a run: says what it found."""
        return self.plan(config)

    @abstractmethod
    def advance(self, run: R, labeler: Labeler | None = None) -> R:
        """Holds the plan and does everything that is not done yet, up to the certificate.

        Raises:
          LabelsPending: people have to label first.
        """

    @abstractmethod
    def certify(self, run: R) -> object:
        """Writes certificate.json from what the ledger holds."""

    def certify_again(self, folder: CampaignFolder) -> None:
        """Writes the certificate of a run that was ended, where it had one."""
        if folder.certificate.is_file():
            self.certify(self.plan(cast("C", settings_that_measured(folder))))

    def said_at_end(self, folder: CampaignFolder, ledger: CampaignLedger) -> Mapping[str, Any]:
        """What the ledger is told when a person ends a run, beside what it released.

        Args:
          folder: of the run.
          ledger: its part, open.
        """
        del folder, ledger
        return {}

    def tracked(self, run: R) -> Tracked:
        """What a tracking server is told of a finished run, where it was not told on the way."""
        del run
        return Tracked(parameters={}, figures={})

    def progress(self, folder: CampaignFolder) -> tuple[int, int]:
        """How much of what a run without phases may release it has released, and of how much."""
        wanted = len(folder.read_record()["plan"]["releases"])
        return (wanted if folder.certificate.is_file() else 0), wanted

    def audit(self, run: R, effort: Effort) -> AuditReport:
        """Attacks a run's mechanisms with its own code, on public or made-up records. No charge.

        Args:
          run: planned, started or not.
          effort: how much to do.

        Raises:
          ParameterError: the run's folder holds a run of another plan.
        """
        require_held_plan(run)
        return audit_report(run, self.attacks(run, effort), {})

    def attacks(self, run: R, effort: Effort) -> Sequence[AuditFinding]:
        """Attacks on mechanisms that only this kind has; none is known of a kind of one's own."""
        del run, effort
        return []

    def results(self, folder: CampaignFolder) -> Shown:
        """What a finished run has to show, in reading order."""
        return [epsilon_table(folder.read_record()["plan"])]

    def shown(self, folder: CampaignFolder) -> Shown:
        """The same, what stands behind the headline figure, and whether the model is worth it."""
        released = released_figures(folder)
        if released is None:
            return self.results(folder)
        names = folder.read_record().get("class_names", ())
        said = (worth_in_short(released, names), worthless(released))
        return [*self.results(folder), *(sentence for sentence in said if sentence is not None)]

    def judges(self, run: R) -> Source | None:
        """Public records with labels, for what reads them as often as it likes.

        None where there are none, or the validation set is protected.
        """
        del run
        return None

    def learned_from(self, released: Mapping[str, Any], document: Mapping[str, Any]) -> str:
        """What a model learned from, for its card; as what follows "It learned from".

        Args:
          released: metrics of the phase that is released.
          document: the certificate.
        """
        del released, document
        return "what its plan says"

    def report(self, folder: CampaignFolder) -> Report:
        """The story of a run, from its files.

        Raises:
          DataError: there is nothing to report on yet.
        """
        summary = folder.read_record()["plan"]
        if not folder.certificate.is_file():
            raise DataError(f"{folder.name} is not finished, so there is nothing to report")
        rows = [
            {"release": release["release"], "kind": release["kind"]}
            for release in summary["releases"]
        ]
        proof = (
            f"{summary['epsilon']:.4f} by the accountant {summary['accountant']}; dp-accounting, "
            f"the second opinion, finds {summary['epsilon_oracle']:.4f}"
        )
        return run_report(
            facts_of(folder, summary["epsilon"]),
            promised_by=(proof,),
            spent=(table("What was released", rows, "release"),),
            sections=(),
            uncovered=tuple(statements(str(read_run_certificate(folder).get("kind"))).values()),
            cards=(),
        )

    def holder(self, folder: CampaignFolder, held: Collection[str]) -> str:
        """Whose part of the ledger tells a run's story: its own.

        Args:
          folder: of the run.
          held: names of all that the ledger knows.
        """
        del held
        return folder.name

    def sweep_member(self, values: dict[str, Any]) -> dict[str, Any]:
        """Settings of one run of a sweep, under a name that follows from all of them.

        Who edits the file and sweeps again gets other runs, not old results.
        """
        return renamed(values)

    def write_sweep(
        self, folder: Path, finished: Sequence[Member], refused: Sequence[Mapping[str, Any]]
    ) -> Shown:
        """Writes results, report and figures of a sweep, and returns what is shown of it.

        Args:
          folder: of the sweep.
          finished: its runs that are done.
          refused: values of the others, and why.
        """
        return write_any_sweep(folder, finished, refused)
