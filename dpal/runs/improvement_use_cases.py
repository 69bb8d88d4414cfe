"""An improvement: label public records for a private model, and learn from them for free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditFinding
from dpal.audit.near_private import near_private_findings
from dpal.canonical import digest
from dpal.config.improvement import PublicConfig, parse_public
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.labeling import Labeler
from dpal.randomness import secure
from dpal.reports.improvement_report import (
    improvement_report,
    improvement_table,
    pollution_table,
    spending_by_release_table,
)
from dpal.reports.report import Picture, Report
from dpal.reports.validation_figures import tracked_figures
from dpal.runs.execute import execute_run
from dpal.runs.improvement_context import Improving
from dpal.runs.improvement_outputs import (
    CENTRAL,
    certify_improved,
    draw_central,
    record_improvement,
)
from dpal.runs.labelers import people_label
from dpal.runs.learn_from_public import (
    FINE_TUNING,
    ROTATIONS,
    ask_public_labeler,
    choose_public,
    close_improvement,
    fine_tune_model,
    pretrain_on_rotations,
)
from dpal.runs.near_private_hold import end_guidance, hold_guidance
from dpal.runs.near_private_releases import release_components, release_support
from dpal.runs.prepare_improvement import (
    is_trained,
    plan_improvement,
    prepare_improvement,
    with_trained_start,
)
from dpal.runs.promised_and_spent import Shown
from dpal.runs.read_recorded_settings import settings_that_measured
from dpal.runs.run_facts import facts_of
from dpal.runs.sweeps import deciding
from dpal.runs.tracked_facts import ServedModel, Tracked
from dpal.runs.use_cases import UseCases


class ImprovementRuns(UseCases[PublicConfig, Improving]):
    """What an improvement does."""

    may_be_free = True
    trainings = (ROTATIONS, FINE_TUNING)

    def plan(self, config: PublicConfig) -> Improving:
        """Looks at the data and certifies a plan. Releases nothing, writes nothing."""
        return plan_improvement(config)

    def prepare(self, config: PublicConfig) -> Improving:
        """The same, and says what it found."""
        return prepare_improvement(config)

    def advance(self, run: Improving, labeler: Labeler | None = None) -> Improving:
        """Holds the plan, trains the start where it is not trained, releases, and learns.

        Raises:
          LabelsPending: people have to label first.
        """
        improving = run
        if improving.config.start.rotations is not None:
            pretrain_on_rotations(improving)
            improving = prepare_improvement(run.config)  # the start begins with other weights
        hold_guidance(improving)
        record_improvement(improving)
        if improving.start.to_train is not None and not is_trained(improving):
            execute_run(improving.start.to_train)
        improving = with_trained_start(improving)
        if improving.spec.guidance is not None:
            release_components(improving)
            release_support(improving)
            end_guidance(improving)
        choose_public(improving)
        if pending := ask_public_labeler(improving, labeler):
            raise pending
        fine_tune_model(improving)
        close_improvement(improving)
        draw_central(improving)
        return improving

    def attacks(self, run: Improving, effort: Effort) -> Sequence[AuditFinding]:
        """Asks what near_private releases whose record it was about; a free choice has nothing."""
        return near_private_findings(run.plan, draws=effort.draws, fresh=secure)

    def results(self, folder: CampaignFolder) -> Shown:
        """Accuracy before and after, and what private records have spent."""
        summary, metrics = folder.read_record()["plan"], folder.finished_phases()[0]
        tables = [improvement_table(summary, metrics), spending_by_release_table(summary)]
        return [*tables, pollution_table(metrics)] if "irrelevant_chosen" in metrics else tables

    def sweep_member(self, values: dict[str, Any]) -> dict[str, Any]:
        """Settings of one improvement of a sweep, with a start that alike ones share."""
        named, about, config = super().sweep_member(values), deciding(values), parse_public(values)
        if not config.start.trains:
            return named
        about["start"].pop("name")  # what it is called is not what it is
        alike = {key: about[key] for key in ("data", "model", "training", "privacy", "start")}
        # Where the guidance takes part of the promise, the start gets what is left.
        if config.start.rotations is not None:
            alike["public"] = about["public"]
        if config.choice.method.reads_private and config.start.epsilon is None:
            alike["near_private"] = about["near_private"]
        stem = config.start.name or f"{values['name']}-start"
        start = {**(named.get("start") or {}), "name": f"{stem}-{digest(alike)[:8]}"}
        return {**named, "start": start}

    def tracked(self, run: Improving) -> Tracked:
        """What a tracking server is told of a finished improvement."""
        spec = run.spec
        metrics = run.folder.finished_phases()[0]
        return Tracked(
            parameters={
                **{f"choice.{key}": value for key, value in vars(spec.choice).items()},
                **{f"fine_tuning.{key}": value for key, value in vars(spec.fine_tuning).items()},
                "start": spec.before.campaign or "a model's file",
                "model": spec.model.name,
            },
            figures={key: value for key, value in metrics.items() if isinstance(value, float | int)}
            | tracked_figures(metrics),
            tags={"dpal.start_from": spec.before.campaign or "a model's file"},
            model=ServedModel(
                weights=run.files.model,
                spec=spec.model,
                extractor=run.start.reading.data.to_extractor(),
                source=run.public,
                class_names=run.start.classes,
            ),
        )

    def certify(self, run: Improving) -> None:
        """Writes certificate.json from what the ledger holds, and from its start's."""
        certify_improved(run)

    def certify_again(self, folder: CampaignFolder) -> None:
        """The same, of the start that was trained."""
        if folder.certificate.is_file():
            planned = self.plan(cast("PublicConfig", settings_that_measured(folder)))
            self.certify(with_trained_start(planned))

    def judges(self, run: Improving) -> Source | None:
        """The start's validation set, which is public."""
        return run.start.validation

    def learned_from(self, released: Mapping[str, Any], document: Mapping[str, Any]) -> str:
        """Labels of public records, after what its start learned from private ones."""
        start = document["start"]["certificate"]
        of = "a model's file" if start is None else f"campaign {start['campaign']}"
        return f"{released['labels']:,} labels of public records, starting from {of}"

    def report(self, folder: CampaignFolder) -> Report:
        """What was labeled and learned; with a figure of the most central public records."""
        phases = folder.finished_phases()
        if not phases or not folder.certificate.is_file():
            raise DataError(
                f"improvement {folder.name} is not finished, so there is nothing to report"
            )
        facts = facts_of(folder, phases[0]["campaign_epsilon"])
        path = folder.figures / f"{CENTRAL}.png"
        alt = (
            "The most central public record of each cluster; wrong ones with prediction and label."
        )
        pictures = [Picture(name=CENTRAL, alt=alt, png=path.read_bytes())] if path.is_file() else []
        people = people_label(folder.read_record())
        return improvement_report(facts, phases[0], pictures=pictures, asks_people=people)

    def holder(self, folder: CampaignFolder, held: Collection[str]) -> str:
        """Its own part of the ledger; its start's where it released nothing itself."""
        if folder.name in held:
            return folder.name
        start = str(folder.read_record()["plan"]["start"])
        return start if start in held else folder.name
