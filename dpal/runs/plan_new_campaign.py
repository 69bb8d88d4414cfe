"""Resolves a campaign's data set, its remaining budget and the campaign it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dpal.canonical import plain
from dpal.config.campaign import CampaignConfig
from dpal.config.runtime import RuntimeConfig
from dpal.config.training import ModelConfig
from dpal.data.known_records import COINCIDENCE
from dpal.data.labeling_state import holds_all
from dpal.data.sources import Source
from dpal.errors import ConfigError, DataError, LedgerError, LedgerMissing
from dpal.features.spec import ExtractorSpec
from dpal.files.artifacts import DATASETS, CampaignFolder, PhaseFolder
from dpal.labels import Task
from dpal.ledger.data_set_accounts import DataSet, data_set
from dpal.ledger.data_set_limits import DataHold
from dpal.ledger.data_set_registry import Located, Registry
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.planning.certify_campaign import certified_or_next_best, certify_plan
from dpal.planning.fit_plan_into_blocks import plan_within
from dpal.privacy import Unit
from dpal.runs.ended_run import was_ended
from dpal.runs.host import host
from dpal.runs.open_ledger import open_ledger
from dpal.runs.protected_validation_overlap import measured_on, require_unmeasured
from dpal.runs.read_recorded_settings import recorded_config
from dpal.runs.released_phase import is_complete, released_phase

SpecFor = Callable[[int, Unit, int], CampaignSpec]

_SHAPE = "shape of a record"


@dataclass(frozen=True, kw_only=True)
class PredecessorCampaign:
    """A finished campaign that another one starts from.

    Attributes:
      folder: its files.
      labels: how many its finished phases had planned to buy; public.
      blocks: of the data set that took part in it.
    """

    folder: CampaignFolder
    labels: int
    blocks: frozenset[int]

    @property
    def model(self) -> Path:
        """The weights that it released as its own."""
        return self._released.model

    @property
    def optimizer(self) -> Path:
        """What its training would have gone on with from there."""
        return self._released.optimizer

    @property
    def state(self) -> Path:
        """Who is labeled in it, and how: in all phases that bought labels."""
        return self.folder.phase(last_labeling_phase(self.folder)).pool

    @property
    def _released(self) -> PhaseFolder:
        return self.folder.phase(released_phase(self.folder))


@dataclass(frozen=True, kw_only=True)
class CampaignStart:
    """What a campaign begins with.

    Attributes:
      plan: what it does.
      proof: the plan, certified here; None where the ledger's hold stands for that.
      data: what it takes of a registered data set; None where none is registered.
      earlier: the campaign it starts from, if any.
      compared: as in `Participants`.
      choice: how public records chose its acquisition, for its record; None where settings say it.
    """

    plan: Plan
    data: DataHold | None
    earlier: PredecessorCampaign | None
    proof: CertifiedPlan | None = None
    compared: int | None = None
    choice: Mapping[str, Any] | None = None

    @cached_property
    def certified(self) -> CertifiedPlan:
        """The plan and its proof, which is made now where nobody made it here.

        Raises:
          PlanRejected: a record would end above the target.
        """
        return self.proof or certify_plan(self.plan)


def registry_of(artifacts: Path, store: LedgerStore) -> Registry:
    """The data sets of an artifacts folder and its ledger."""
    return Registry(store, artifacts / DATASETS)


@dataclass(frozen=True, kw_only=True)
class Participants:
    """Whose records a campaign may be about: what planning needs to know of the pool.

    Attributes:
      owners: records in the pool, or groups where the settings protect them.
      unit: whom the settings protect; a data set says it itself.
      dataset: the registered data set that they belong to, as it stands; None for none.
      sizes: owners in the pool by block of the data set.
      held: what the campaign holds of the data set already; None before it began.
      earlier: the campaign that it starts from, if any.
      compared: with how many parts of data sets its records were compared; None where one counts
        them, or the campaign began.
    """

    owners: int
    unit: Unit
    dataset: DataSet | None
    sizes: Mapping[int, int]
    held: DataHold | None
    earlier: PredecessorCampaign | None
    compared: int | None = None


def plan_start(
    config: CampaignConfig, pool: Source, owners: int, spec_for: SpecFor
) -> CampaignStart:
    """Plans a campaign within what its data set has left. Writes nothing.

    Args:
      config: what the person wrote.
      pool: private records.
      owners: how many, or of how many groups where the settings protect them.
      spec_for: the wishes, for a number of owners, a unit and a number of carried labels.

    Raises:
      DataBudgetExceeded: the data set has not enough left.
      DataError: the pool's records are not all in the data set, or they are in one and the
        configuration does not say so.
    """
    return plan_for(find_participants(config, pool, owners), spec_for)


def find_participants(config: CampaignConfig, pool: Source, owners: int) -> Participants:
    """Reads the pool and the ledger once, for one plan or several."""
    earlier = find_earlier(config)
    if earlier is not None and not holds_all(pool, earlier.folder.start):
        raise DataError(
            f"{pool.name} does not hold all records of campaign {earlier.folder.name}, whose "
            "labels would be lost; add the files that it was about to data.pool"
        )
    if config.data.dataset is None:
        if config.start_from is not None:
            raise ConfigError("start_from needs data.dataset (dpal data register)")
        compared = None
        if not holds_a_plan(config.runtime, config.name):
            compared = require_unregistered(config.runtime, pool)
        return Participants(
            owners=owners,
            unit=config.privacy.unit,
            dataset=None,
            sizes={},
            held=None,
            earlier=None,
            compared=compared,
        )
    with closing(open_ledger(config.runtime, create=False)) as store:
        name = config.data.dataset
        dataset = data_set(store.of_data_set(name), name)
        folder = config.runtime.artifacts / config.name
        ledger = CampaignLedger(store, config.name, folder)
        held = held_data(ledger, name)
        if held is not None:
            sizes = {share.block: share.size for share in held.shares}
        else:
            sizes = locate(config, pool, store).sizes()
            # Adding them was refused, where what was said of the runs then was true.
            column = dataset.limit.owner_column
            require_unmeasured(
                measured_on(pool, store.entries(), config.runtime.artifacts, owner_column=column),
                pool,
            )
        return Participants(
            owners=owners,
            unit=dataset.limit.unit,
            dataset=dataset,
            sizes=sizes,
            held=held,
            earlier=earlier,
        )


def plan_for(participants: Participants, spec_for: SpecFor) -> CampaignStart:
    """Plans what is wished for on these records.

    Raises:
      DataBudgetExceeded: the data set has not enough left.
    """
    dataset, sizes, earlier = participants.dataset, participants.sizes, participants.earlier
    if dataset is None:
        certified = certified_or_next_best(spec_for(participants.owners, participants.unit, 0))
        return CampaignStart(
            plan=certified.plan,
            proof=certified,
            data=None,
            earlier=None,
            compared=participants.compared,
        )
    if earlier is not None:
        _require_same_start(earlier, spec_for(participants.owners, Unit.RECORD, 0))
    unit = participants.unit

    def wishes(taking: Iterable[int]) -> CampaignSpec:
        blocks = set(taking)
        carried = earlier.labels if earlier and earlier.blocks <= blocks else 0
        return spec_for(sum(sizes[block] for block in blocks), unit, carried)

    if participants.held is not None:
        held = participants.held
        certified = certified_or_next_best(wishes(sizes)).with_blocks(held.shares)
    else:
        certified = plan_within(wishes, dataset, sizes)
        held = DataHold(
            dataset=dataset.name, limit=dataset.limit, shares=certified.plan.spec.blocks
        )
    return CampaignStart(plan=certified.plan, proof=certified, data=held, earlier=earlier)


def held_data(ledger: CampaignLedger, dataset: str | None) -> DataHold | None:
    """What a campaign holds of its data set; None before it began, and where it has none.

    Raises:
      LedgerError: it was started on another data set than the settings name.
    """
    held = ledger.data()
    if ledger.identity and (held.dataset if held else None) != dataset:
        of = f"data set {held.dataset}" if held else "no data set"
        raise LedgerError(
            f"campaign {ledger.campaign} was started on {of}, and data.dataset is "
            f"{dataset or 'null'}; set it as it was to continue, or choose another name for a new "
            "campaign"
        )
    return held


def locate(config: CampaignConfig, pool: Source, store: LedgerStore) -> Located:
    """Finds the pool's records among the data set's blocks."""
    registry = registry_of(config.runtime.artifacts, store)
    with tqdm(desc="finding blocks", unit="rec", disable=None, leave=False) as bar:
        return registry.locate(str(config.data.dataset), pool, on_rows=bar.update)


def find_earlier(config: CampaignConfig) -> PredecessorCampaign | None:
    """The campaign that a configuration starts from, if it can be continued by this one.

    Raises:
      ConfigError: it was about other data, another model, or hid what this one shows; or it is no
        campaign.
      NotAllowed: its settings name what only the data's owner may widen.
      DataError: it is not finished, or its files are not as they were.
    """
    if config.start_from is None:
        return None
    folder = CampaignFolder(config.runtime.artifacts / config.start_from)
    record = folder.read_record()
    plan, before = record["plan"], record["config"]
    if host().is_limited:  # elsewhere nothing else of its settings has to be known
        recorded_config(folder)
    finished = len(folder.finished_phases())
    needed: set[int] = set()
    if finished:
        needed = {finished - 1, released_phase(folder), last_labeling_phase(folder)}
    lost = any(folder.phase(number).read_manifest() is None for number in needed)
    if not is_complete(folder) and was_ended(folder, config.runtime):
        raise DataError.before_release(
            f"start_from names campaign {config.start_from}, which was ended before its plan was "
            "done; name a finished campaign, or leave start_from out"
        )
    if lost or not is_complete(folder):
        raise DataError(
            f"start_from names campaign {config.start_from}, which is not finished or lost "
            f"files; finish it first (dpal status {folder.root})"
        )
    here = config.model_dump(mode="json")
    models = [_architecture(settings["model"]) for settings in (before, here)]
    if config.data.dataset is None or before["data"].get("dataset") != config.data.dataset:
        raise ConfigError(
            f"start_from {config.start_from} needs data.dataset, the same in both campaigns, so "
            "that what both cost a record is counted together"
        )
    if models[0] != models[1]:
        raise ConfigError(
            f"start_from {config.start_from} has another model ({models[0]['name']}); use the "
            "same model section"
        )
    hidden = SelectionMode.HIDDEN
    if before["privacy"]["selection"] == hidden and config.privacy.selection is not hidden:
        raise ConfigError(
            f"campaign {config.start_from} hid who was selected, and selection "
            f"{config.privacy.selection} would show who is left; set privacy.selection: hidden"
        )
    return PredecessorCampaign(
        folder=folder,
        labels=sum(labels_in(phase) for phase in plan["phases"][:finished]),
        blocks=frozenset(share["block"] for share in plan["blocks"]),
    )


def last_labeling_phase(folder: CampaignFolder) -> int:
    """The last finished phase that bought labels; there is one."""
    finished = folder.read_record()["plan"]["phases"][: len(folder.finished_phases())]
    return [number for number, phase in enumerate(finished) if labels_in(phase)][-1]


def labels_in(phase: Mapping[str, Any]) -> int:
    """Labels that a phase of a recorded plan buys, as planned; none where it trains itself."""
    return 0 if phase.get("pseudo_labels", False) else int(phase["cohort_size"])


def _architecture(model: dict[str, Any]) -> dict[str, Any]:
    """The model section, without where weights lie: what lies there is compared later."""
    whole = ModelConfig.model_validate(model).model_dump(mode="json")
    return {**whole, "seed": 0, "weights": whole["weights"] is not None}


def weights_for(spec: CampaignSpec) -> dict[str, Any]:
    """What the weights of a campaign belong to, by setting: its inputs, and where they began."""
    return {
        "data.extractor": plain(spec.extractor),
        "data.normalisation": plain(spec.model.normalisation),
        "model.weights": spec.model.weights_digest,
        _SHAPE: plain(spec.model.input_shape),
    }


def _require_same_start(earlier: PredecessorCampaign, spec: CampaignSpec) -> None:
    """Requires that the earlier weights go on over the inputs and labels they were made for."""
    record, model = earlier.folder.read_record(), spec.model
    labels = (record.get("task", Task.SINGLE_LABEL.value), record["classes"])
    if labels != (model.task.value, model.classes):
        raise DataError(
            f"start_from {earlier.folder.name} has {labels[1]} classes ({labels[0]}) and the "
            f"validation set {model.classes} ({model.task}); use data with the same labels"
        )
    now = weights_for(spec)
    # Campaigns of earlier versions wrote none of it, and had no extractor and the like.
    early = {_SHAPE: now[_SHAPE], "data.extractor": plain(ExtractorSpec())}
    before = record.get("weights_for", early)
    others = [name for name, value in now.items() if before.get(name) != value]
    if others:
        raise DataError(
            f"start_from {earlier.folder.name} had another {' and another '.join(others)}, which "
            "its weights were trained for; use the same as there, also the same content of a "
            "file of weights, or of a validation set that normalisation is measured on"
        )


def holds_a_plan(runtime: RuntimeConfig, name: str) -> bool:
    """Whether a run of this name has begun: what it holds was counted when it began, or since."""
    try:
        with closing(open_ledger(runtime, create=False)) as store:
            return any(entry.kind is EntryKind.HOLD for entry in store.entries(name))
    except LedgerMissing:
        return False


def require_unregistered(
    runtime: RuntimeConfig, source: Source, *, coincidence: float = COINCIDENCE
) -> int:
    """Requires that no registered data set's limit is passed by in silence.

    Args:
      runtime: says where ledger and data sets are.
      source: the records.
      coincidence: as in `Registry.require_unregistered`.

    Returns:
      With how many parts of data sets they were compared, for `CampaignLedger.hold`.

    Raises:
      RecordsRegistered: the records belong to a data set.
      LedgerError: there are data sets whose ledger is gone.
    """
    artifacts = runtime.artifacts
    try:
        opened = open_ledger(runtime, create=False)
    except LedgerMissing as missing:  # or a crash came before its first entry
        if any((artifacts / DATASETS).glob("*/part-*")):
            raise LedgerError.before_release(
                f"{artifacts / DATASETS} holds registered records and their ledger is gone "
                f"({missing}); restore it"
            ) from missing
        return 0  # nothing was ever registered or spent
    with (
        closing(opened) as store,
        tqdm(desc="comparing records", unit="rec", disable=None, leave=False) as bar,
    ):
        return registry_of(artifacts, store).require_unregistered(
            source, coincidence=coincidence, on_rows=bar.update
        )
