"""What every task of an improvement is handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from dpal.config.improvement import ROTATION_WEIGHTS, PublicConfig
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.files.artifacts import PhaseFolder
from dpal.models.weights import put_weights, read_safetensors
from dpal.planning.improvement_plan import CertifiedImprovement, ImprovementPlan, ImprovementSpec
from dpal.reports.improvement_report import choice_table, spending_by_release_table
from dpal.reports.report import Table
from dpal.runs.improvement_start_model import StartModel
from dpal.runs.kinds import folder_of
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.run import ConfiguredRun
from dpal.training.arithmetic import exact_arithmetic


@dataclass(frozen=True, kw_only=True)
class Improving(ConfiguredRun[ImprovementPlan]):
    """A certified improvement and where its things are; what every task is handed.

    Attributes:
      config: what the person wrote.
      certified: the plan and its proof.
      start: the model that is improved.
      public: public records that may be labeled.
    """

    kind, noun = "public", "improvement"

    config: PublicConfig
    certified: CertifiedImprovement
    start: StartModel
    public: Source

    @property
    def spec(self) -> ImprovementSpec:
        """Its numbers."""
        return self.plan.spec

    @property
    def files(self) -> PhaseFolder:
        """The files of its one phase: choice, labels, fine-tuned model."""
        return self.folder.phase(0)

    def plan_tables(self) -> Sequence[Table]:
        """What is labeled, and what was and will be released."""
        summary = self.certified.summary()
        return [choice_table(summary), spending_by_release_table(summary)]

    def load_start(self) -> nn.Module:
        """The model that is improved, on its device."""
        if self.start.weights is None:
            raise DataError(f"the start of {self.config.name} is not trained yet")
        model = self.start.architecture()
        put_weights(model, read_safetensors(self.start.weights), self.start.weights)
        return self._placed(model)

    def load_improved(self) -> nn.Module:
        """The fine-tuned model, on its device."""
        model = self.start.architecture()
        model.load_state_dict(load_file(self.files.model))
        return self._placed(model)

    def _placed(self, model: nn.Module) -> nn.Module:
        if self.device != "cpu":
            exact_arithmetic()
        return model.to(self.device)


def rotation_weights(config: PublicConfig) -> Path:
    """Where rotation pretraining leaves its weights."""
    return folder_of(config).root / ROTATION_WEIGHTS


def labeling_job(improving: Improving) -> LabelingJob:
    """Who labels the chosen public records."""
    return LabelingJob(
        config=improving.config,
        pool=improving.public,
        classes=improving.spec.model.classes,
        class_names=improving.start.classes,
    )
