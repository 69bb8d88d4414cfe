"""Private voting: teachers on private records label public ones, and a student learns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditFinding
from dpal.audit.votes import TRANSCRIPTS, near_findings, vote_findings
from dpal.config.pate import PateConfig
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.labeling import Labeler
from dpal.randomness import secure
from dpal.reports.pate_baseline_tables import methods_table
from dpal.reports.pate_report import method_findings, pate_report
from dpal.reports.pate_sweeps import (
    SweptVoting,
    sweep_comparison_records,
    sweep_figures,
    sweep_tables,
    voting_sweep_report,
)
from dpal.reports.plots.style import save
from dpal.reports.report import Report
from dpal.reports.validation_figures import tracked_figures
from dpal.reports.vote_report import vote_cost_table
from dpal.runs.baselines import run_baselines
from dpal.runs.embed_records import embed_records
from dpal.runs.ensemble_hold import hold_ensemble
from dpal.runs.execute import execute_run
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble, prepare_ensemble, record_ensemble
from dpal.runs.promised_and_spent import Shown
from dpal.runs.public_model import PUBLIC_MODEL, train_public_model
from dpal.runs.query_rounds import CHOOSER, choose_queries, train_chooser
from dpal.runs.release_votes import release_labels
from dpal.runs.run_facts import facts_of
from dpal.runs.student import STUDENT, close_student, train_on_votes
from dpal.runs.student_quality import METHODS, judgements
from dpal.runs.sweeps import COMPARISONS, RESULTS, Member
from dpal.runs.teachers import TEACHERS, deal_records, train_teachers
from dpal.runs.tracked_facts import ServedModel, Tracked
from dpal.runs.use_cases import UseCases
from dpal.runs.vote_account import certify_votes


class VotingRuns(UseCases[PateConfig, Ensemble]):
    """What private voting does."""

    trainings = (TEACHERS, PUBLIC_MODEL, CHOOSER, STUDENT)

    def plan(self, config: PateConfig) -> Ensemble:
        """Looks at the data and certifies a plan. Releases nothing, writes nothing."""
        return plan_ensemble(config)

    def prepare(self, config: PateConfig) -> Ensemble:
        """The same, and says what it found."""
        return prepare_ensemble(config)

    def advance(self, run: Ensemble, labeler: Labeler | None = None) -> Ensemble:
        """Holds the plan, trains teachers, releases their votes once, and lets a student learn."""
        del labeler  # the teachers are
        hold_ensemble(run)
        record_ensemble(run)
        embed_records(run)
        deal_records(run)
        train_teachers(run)
        train_public_model(run)
        for number in run.rounds:
            train_chooser(run)
            choose_queries(run, number)
            release_labels(run, number)
        train_on_votes(run)
        close_student(run)
        run_baselines(run, execute_run)
        return run

    def certify(self, run: Ensemble) -> None:
        """Writes certificate.json from what the ledger holds."""
        certify_votes(run.account, model=run.files.model)

    def attacks(self, run: Ensemble, effort: Effort) -> Sequence[AuditFinding]:
        """Lets made-up teachers vote, and asks the answers whose ballot it was."""
        if run.spec.near is not None:
            return near_findings(run.plan, transcripts=TRANSCRIPTS, fresh=secure)
        return vote_findings(run.plan, transcripts=TRANSCRIPTS, draws=effort.draws, fresh=secure)

    def results(self, folder: CampaignFolder) -> Shown:
        """What every method reached, and what votes cost."""
        summary = folder.read_record()["plan"]
        methods = judgements(folder)
        return [
            methods_table(methods),
            vote_cost_table(summary),
            *method_findings(summary, folder.finished_phases()[0], methods),
        ]

    def write_sweep(
        self, folder: Path, finished: Sequence[Member], refused: Sequence[Mapping[str, Any]]
    ) -> Shown:
        """Writes results, tables and figures of a sweep: every method's mean and spread."""
        swept = [
            SweptVoting(
                name=member.config.name,
                swept=member.swept,
                summary=member.folder.read_record()["plan"],
                metrics=member.folder.finished_phases()[0],
                methods=judgements(member.folder),
            )
            for member in finished
        ]
        record = [{"name": voting.name, "swept": voting.swept, "metrics": voting.metrics,
                   "methods": voting.methods} for voting in swept]  # fmt: skip
        write_text(folder / RESULTS, json.dumps([*record, *refused], indent=1) + "\n")
        if not swept:
            return [f"results: {folder / RESULTS}"]
        compared = json.dumps(sweep_comparison_records(swept), indent=1)
        write_text(folder / COMPARISONS, compared + "\n")
        pictures = [
            save(figure, folder / f"sweep-{key}.png").name
            for key, figure in sweep_figures(swept).items()
        ]
        write_text(folder / "sweep.md", voting_sweep_report(folder.name, swept, pictures))
        return [*sweep_tables(swept), f"results: {folder / 'sweep.md'}"]

    def tracked(self, run: Ensemble) -> Tracked:
        """What a tracking server is told of finished voting: figures of every method."""
        ensemble = run
        spec, config, methods = ensemble.spec, ensemble.config, judgements(ensemble.folder)
        metrics = ensemble.folder.finished_phases()[0]
        figures = {
            key: float(value) for key, value in metrics.items() if isinstance(value, float | int)
        } | tracked_figures(metrics)
        for method, judged in methods.items():
            values = {**judged["figures"], **judged.get("averages", {})}
            figures |= {f"{method}.{key}": float(value) for key, value in values.items()}
        tags = {} if ensemble.data is None else {"dpal.dataset": ensemble.data.dataset}
        if "non_private" in methods:
            tags["dpal.not_private"] = (
                "metrics non_private.* protect nobody; they are for comparing"
            )
        return Tracked(
            parameters={
                **{f"voting.{key}": value for key, value in vars(spec.rule).items()},
                **{
                    f"voting.{key}": value
                    for key, value in ({} if spec.near is None else vars(spec.near)).items()
                },
                **{
                    f"voting.{key}": getattr(config.voting, key)
                    for key in (("objections", "object_from") if spec.consensus else ())
                },
                "voting.queries": config.voting.queries,
                "voting.rounds": config.voting.rounds,
                "voting.acquisition": config.voting.acquisition.value,
                "student.method": config.student.method,
                "model": ensemble.model.name,
            },
            figures=figures,
            tags=tags,
            records={METHODS: methods},
            model=ServedModel(
                weights=ensemble.files.model,
                spec=ensemble.model,
                extractor=config.data.to_extractor(),
                source=ensemble.public,
                class_names=ensemble.class_names,
            ),
        )

    def judges(self, run: Ensemble) -> Source | None:
        """The validation set, which is public."""
        return run.validation

    def learned_from(self, released: Mapping[str, Any], document: Mapping[str, Any]) -> str:
        """Released labels of public records, on which teachers voted."""
        if document.get("near"):
            return (
                f"{released['labels']:,} released labels of public records: noisy votes of private "
                f"records near them, each on at most {document['near']['votes']:,} queries of a "
                "round"
            )
        teachers = document["rule"]["teachers"]
        if document.get("consensus"):
            return (
                f"{released['labels']:,} released labels of public records: answers of a public "
                f"model, and noisy votes of {teachers:,} teachers, each of whom learned from "
                "private records of its own, where they objected, "
                f"{document['consensus']['objections']:,} times at most"
            )
        votes = "noisy numbers of votes" if document["rule"].get("counts") else "noisy votes"
        return (
            f"{released['labels']:,} released labels of public records: {votes} of "
            f"{teachers:,} teachers, each of whom learned from private records of its own"
        )

    def report(self, folder: CampaignFolder) -> Report:
        """Student, votes, and every other way that was tried."""
        phases = folder.finished_phases()
        if not phases or not folder.certificate.is_file() or not judgements(folder):
            raise DataError(f"{folder.name} is not finished, so there is nothing to report")
        facts = facts_of(folder, phases[0]["campaign_epsilon"])
        return pate_report(facts, phases[0], judgements(folder))
