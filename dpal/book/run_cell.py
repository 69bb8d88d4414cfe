"""Makes one cell of a book: runs it, and judges what came of it on the test records."""

from __future__ import annotations

import copy
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpal.book.book_file import BookSet
from dpal.book.cells import PART, BookCell
from dpal.book.data_set_splits import DataParts, make_parts
from dpal.book.methods import (
    BETWEEN_SITES,
    NOT_PRIVATE,
    ONE_PHASE,
    PRIVATE,
    SELECTING,
)
from dpal.book.non_private_picks import reference_pick
from dpal.book.results import CellPhase, CellResult
from dpal.book.sites_cells import make_sites_cell
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import CampaignConfig, override
from dpal.config.runtime import RunConfig
from dpal.data.labeling_state import load_all
from dpal.data.sources import Source
from dpal.errors import (
    BudgetExceeded,
    CampaignBusy,
    DataBudgetExceeded,
    ParameterError,
    PlanRejected,
)
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import Acquisition, CampaignSpec
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.planning.public_selection import FineTuning
from dpal.randomness import seeded
from dpal.reports.validation_figures import headline
from dpal.runs.devices import device_here
from dpal.runs.execute import execute_run
from dpal.runs.kinds import campaign_of, kind_in, kind_of
from dpal.runs.linear_step_and_clipping import linear_rates
from dpal.runs.open_sources import open_sources, open_validation
from dpal.runs.predict import open_model
from dpal.runs.prepare_campaign import open_data
from dpal.runs.released_phase import released_phase
from dpal.runs.unregistered_runs import on_public_records
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from dpal.training.evaluation import evaluate
from dpal.training.gain_over_majority import model_worth
from dpal.training.label_metrics import answers_in, label_figures
from dpal.training.plain_training import fine_tune
from dpal.training.predictions import probabilities

PARTS, RUNS = "data", "runs"  # folders of a book
_BATCH = 1024  # records per forward pass
# Of training that protects nobody, chosen on the validation records.
_PLAIN_RATES = (0.0003, 0.001, 0.003, 0.01)
_PLAIN_EPOCHS, _PLAIN_BATCH = 40, 64
_PAUSE, _TRIES = 5.0, 360  # seconds; another cell may be making a start that both share
_REFUSALS = (BudgetExceeded, DataBudgetExceeded, ParameterError, PlanRejected)


@dataclass(frozen=True, kw_only=True)
class CellOrder:
    """A cell that is to be made.

    Attributes:
      cell: what.
      about: its data set.
      folder: of the book.
    """

    cell: BookCell
    about: BookSet
    folder: Path


@dataclass(frozen=True, eq=False)
class _Judge:
    """Test records, and how models are judged by them."""

    inputs: Tensor
    labels: Tensor
    task: Task

    def figures(self, model: nn.Module) -> dict[str, float]:
        """All figures of a model, the headline first."""
        found = evaluate(model, self.inputs, self.labels, physical_batch=_BATCH, task=self.task)
        if self.task is Task.MULTI_LABEL:
            guesses = self._guesses(model)
            cuts = np.full(guesses.shape[1], 0.5)
            averages = label_figures(guesses, answers_in(self.labels.numpy()), cuts).averages()
            found |= {key: float(value) for key, value in averages.items() if key not in found}
        return {key: value for key, value in found.items() if math.isfinite(value)}

    def majority(self, model: nn.Module) -> float:
        """The headline figure of always giving the most frequent answer."""
        return float(model_worth(self.task, self._guesses(model), self.labels.numpy()).majority)

    def _guesses(self, model: nn.Module) -> Any:
        return probabilities(model, self.inputs, physical_batch=_BATCH, task=self.task)


def run_cell(order: CellOrder) -> CellResult:
    """Makes a cell, or goes on with it where it was interrupted.

    A cell that no promise covers is a result, too: it says why.

    Raises:
      DpalError: as a run of its kind. What is persisted is not lost.
    """
    started, cell = time.monotonic(), order.cell
    parts = make_parts(order.about, cell.files, cell.seed, order.folder / PARTS)
    about = CellResult(
        digest=cell.digest,
        method=cell.method,
        set_name=cell.set_name,
        seed=cell.seed,
        settings=dict(cell.settings),
        records=_records(parts),
        made_on=_made_on(),
    )
    try:
        if cell.method in BETWEEN_SITES:
            made = make_sites_cell(cell, parts)
            return replace(about, **made, seconds=round(time.monotonic() - started, 2))
        config, told = _with_rates(order, cell_settings(order, parts))
        made = _MADE[cell.method](order, config, _judge_of(config, parts.test))
    except _REFUSALS as refused:
        return replace(about, refused=str(refused), seconds=time.monotonic() - started)
    chosen = {**told, **made.pop("chosen", {})}
    return replace(about, **made, chosen=chosen, seconds=round(time.monotonic() - started, 2))


def cell_settings(order: CellOrder, parts: DataParts) -> RunConfig:
    """Settings of a cell's run, with the files of its parts, under a name of its own."""
    values = _placed(copy.deepcopy(dict(order.cell.settings)), parts)
    values["name"] = order.folder.name[:40]
    override(values, "runtime.artifacts", str(order.folder / RUNS))
    kind = kind_in(values)
    return kind.parse(kind.use_cases().sweep_member(values))


def _placed(value: Any, parts: DataParts) -> Any:
    """The same settings with files in place of the parts that they name."""
    if isinstance(value, dict):
        return {key: _placed(item, parts) for key, item in value.items()}
    if isinstance(value, str) and value.startswith(PART):
        return str(getattr(parts, value.removeprefix(PART)))
    return value


def _with_rates(order: CellOrder, config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
    """Settings with rate and clipping norm by the noise of the plan, where the set wants that."""
    about, method = order.about, order.cell.method
    if about.logit_noise is None or method == NOT_PRIVATE or not _buys_by_schedule(config):
        return config, {}
    campaign = campaign_of(config)
    spec = _spec_of(campaign)
    if method in SELECTING:
        spec = spec_for(RehearsalMethod.EXACT, spec)
    rates = linear_rates(
        certified_or_next_best(spec).plan,
        width=math.prod(spec.model.input_shape),
        momentum=campaign.training.momentum,
        logit_noise=about.logit_noise,
    )
    values = {"learning_rate": rates.learning_rate, "max_grad_norm": rates.max_grad_norm}
    training = campaign.training.model_copy(update=values)
    return campaign.model_copy(update={"training": training}), values


def _buys_by_schedule(config: RunConfig) -> bool:
    about = kind_of(config).in_books
    return about is not None and about.buys_by_schedule


def _spec_of(config: CampaignConfig) -> CampaignSpec:
    """What a campaign would plan for its files."""
    named = config.settled(Acquisition.RANDOM) if config.is_to_be_chosen else config
    return open_data(named).spec


def _private(order: CellOrder, config: RunConfig, judge: _Judge) -> dict[str, Any]:
    folder = _executed(config)
    model, phases = open_model(folder.root), folder.finished_phases()
    curve = [
        CellPhase(
            labels=int(phase.get("labels", 0)),
            figures=judge.figures(replace(model, weights=folder.phase(number).model).build()),
            validation=headline(phase)[1],
        )
        for number, phase in enumerate(phases)
    ]
    summary = folder.read_record()["plan"]
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    released = released_phase(folder)
    spent = summary.get("epsilon", summary.get("worst_epsilon"))
    return {
        "figures": curve[released].figures,
        "curve": tuple(curve),
        "told": {key: float(value) for key, value in phases[released].items()
                 if isinstance(value, int | float)},
        "majority": judge.majority(model.build()),
        "promise": {
            "epsilon": summary["target_epsilon"], "spent": spent, "delta": summary["delta"],
            "adjacency": summary["adjacency"], "unit": summary["unit"],
        },
        "run": f"{RUNS}/{folder.name}",
        "plan": str(certificate["plan"]["digest"]),
        "certificate": str(certificate["digest"]),
        "chosen": {"released_phase": released},
    }  # fmt: skip


def _executed(config: RunConfig) -> CampaignFolder:
    """Runs what settings say; waits while another cell makes a start that both share."""
    with on_public_records():
        for _ in range(_TRIES):
            try:
                return execute_run(config)
            except CampaignBusy:
                time.sleep(_PAUSE)
        return execute_run(config)


def _exact(order: CellOrder, config: CampaignConfig, judge: _Judge) -> dict[str, Any]:
    """Private training, and selections without privacy, which are charged nothing."""
    spec = _spec_of(config)
    score = spec.acquisition
    plan = certified_or_next_best(spec_for(RehearsalMethod.EXACT, spec)).plan
    pool, validation = open_sources(config)
    data = PublicData(*load_all(pool), *load_all(validation))
    figures: list[dict[str, float]] = []
    majority: list[float] = []

    def look(model: nn.Module) -> None:
        figures.append(judge.figures(model))
        majority[:] = [judge.majority(model)]

    phases = rehearse(
        plan,
        data,
        RehearsalMethod.EXACT,
        acquisition=score,
        physical_batch=_BATCH,
        reference=reference_pick(order.cell.method, spec.model, seed=order.cell.seed),
        on_model=look,
        device=device_here(config.runtime),
    )
    planned = accumulate(plan.spec.schedule.cohort_sizes)
    curve = tuple(
        CellPhase(labels=labels, figures=found, validation=_first(phase.figures))
        for labels, phase, found in zip(planned, phases, figures, strict=True)
    )
    best = int(np.argmax([point.validation for point in curve]))
    return {
        "figures": curve[best].figures,
        "curve": curve,
        "majority": majority[0],
        "chosen": {"released_phase": best},
    }


def _not_private(order: CellOrder, config: CampaignConfig, judge: _Judge) -> dict[str, Any]:
    """Plain training on labels drawn by chance; its rate is chosen on the validation records."""
    spec = _spec_of(config)
    pool, validation = open_sources(config)
    inputs, labels = load_all(pool)
    known = _Judge(*load_all(validation), task=spec.model.task)
    drawn = seeded(order.cell.seed, "labels of a reference").permutation(len(labels))
    rows = torch.from_numpy(np.sort(drawn[: spec.schedule.initial]))
    tried = {}
    for rate in _PLAIN_RATES:
        model = _plainly_trained(spec.model, inputs[rows], labels[rows], rate, order.cell.seed)
        tried[rate] = (_first(known.figures(model)), model)
    rate = max(tried, key=lambda rate: tried[rate][0])
    reached, model = tried[rate]
    figures = judge.figures(model)
    return {
        "figures": figures,
        "curve": (CellPhase(labels=len(rows), figures=figures, validation=reached),),
        "majority": judge.majority(model),
        "chosen": {"learning_rate": rate},
    }


def _plainly_trained(
    spec: ModelSpec, inputs: Tensor, labels: Tensor, rate: float, seed: int
) -> nn.Module:
    model = build_model(spec)
    settings = FineTuning(
        optimizer="adam", learning_rate=rate, epochs=_PLAIN_EPOCHS, batch_size=_PLAIN_BATCH,
        weight_decay=0.0, shift=0, seed=seed,
    )  # fmt: skip
    fine_tune(model, inputs, labels, settings, task=spec.task)
    return model


_MADE: Mapping[str, Callable[[CellOrder, Any, _Judge], dict[str, Any]]] = {
    PRIVATE: _private,
    ONE_PHASE: _private,
    **dict.fromkeys(SELECTING, _exact),
    NOT_PRIVATE: _not_private,
}


def _judge_of(config: Any, test: Path) -> _Judge:
    """Test records, read as the run reads its own."""
    if not _buys_by_schedule(config):
        config = CampaignConfig(name="judge", data=config.data, validation=config.validation)
    data = config.data.model_copy(update={"validation": test})
    source = open_validation(config.model_copy(update={"data": data}))
    return _loaded(test, repr(data.extractor), source)


@lru_cache(maxsize=4)
def _loaded(test: Path, extractor: str, source: Source) -> _Judge:
    return _Judge(*load_all(source), task=source.task)


def _first(figures: Mapping[str, float]) -> float:
    return next(iter(figures.values()))


def _records(parts: DataParts) -> dict[str, int]:
    import pyarrow.parquet as pq

    files = {"pool": parts.pool, "validation": parts.validation, "test": parts.test,
             "public": parts.public}  # fmt: skip
    return {name: pq.read_metadata(file).num_rows for name, file in files.items()
            if file is not None}  # fmt: skip


def _made_on() -> dict[str, str]:
    """Hardware and versions that a result was made with."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dpal": version("dpal"),
    }


@lru_cache(maxsize=1)
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
