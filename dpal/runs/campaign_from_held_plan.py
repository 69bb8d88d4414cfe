"""A campaign whose plan the ledger holds, prepared without planning and certifying it once more.

Whoever leads certified the plan before the ledger held it, and the ledger holds no other. So who
trains for it needs to know that its plan is that one, to every number, and its files are those;
where anything differs, and in doubt, it plans and certifies itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from importlib import metadata
from typing import Any

from dpal.accounting.events import NoisyFigures, to_record
from dpal.config.campaign import CampaignConfig
from dpal.data.pool_file_digests import learn_files
from dpal.data.pool_files import commitment
from dpal.data.sources import Source
from dpal.errors import DpalError, LedgerMissing
from dpal.files.artifacts import RECORD, CampaignFolder
from dpal.labels import Task
from dpal.ledger.data_set_accounts import BlockShare
from dpal.ledger.release_protocol import CampaignLedger
from dpal.models.normalisation import Normalisation
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, Strategy, ThresholdStart
from dpal.planning.phases_json import read_phases, write_phases
from dpal.privacy import Unit
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign import Campaign
from dpal.runs.kinds import folder_of
from dpal.runs.open_ledger import open_ledger
from dpal.runs.open_sources import open_sources
from dpal.runs.plan_new_campaign import CampaignStart, find_earlier, held_data
from dpal.runs.store_upload import open_run_ledger

HELD_PLAN = "held_plan"  # in a campaign's record


def held_plan_record(campaign: Campaign) -> dict[str, Any]:
    """What a campaign's record says of its plan, for whoever trains for it, as JSON values.

    Beside the phases, what its specification has of the data and not of the settings. None of it
    is trusted: what is made of it has the digest that the ledger holds, or is thrown away.

    Args:
      campaign: whose plan the ledger holds.
    """
    plan, spec = campaign.plan, campaign.plan.spec
    if plan.trial is not None:
        return {}  # workers of a pool train for no campaign that searches
    protected, measured = spec.validation, campaign.config.data.normalisation.measured
    normalisation = spec.model.normalisation if measured else None
    facts = {
        "pool_size": spec.pool_size,
        "input_shape": list(spec.model.input_shape),
        "classes": spec.model.classes,
        "task": spec.model.task.value,
        "unit": spec.target.unit.value,
        "carried": spec.schedule.initial if spec.carries_labels else 0,
        "measured": None
        if normalisation is None
        else [list(normalisation.mean), list(normalisation.std)],
        "threshold_start": spec.threshold_start.value,
        "protected_records": None if protected is None else protected.records,
        "protected_groups": None if protected is None else protected.groups,
        "group_column": None if spec.groups is None else spec.groups.column,
        "draws_openly": not spec.secret_draw,
        "offers_all": spec.candidates is None,
    }
    return {
        HELD_PLAN: {
            "version": metadata.version("dpal"),
            "validation": _committed(campaign.folder, campaign.validation),
            "facts": facts,
            "acquisition": spec.acquisition.value,
            "strategy": spec.strategy.value,
            "phases": write_phases(plan.phases),
            "figures": None if plan.figures is None else to_record(plan.figures),
        }
    }


def held_campaign(config: CampaignConfig) -> Campaign | None:
    """A campaign as the ledger holds it. Releases nothing, writes nothing.

    Returns:
      The campaign; its plan is certified anew only where somebody asks for its figures. None
      where this is not certain: another version of dpal planned it, its record is of other
      settings or unreadable, the ledger holds another plan or none, the pool or the validation
      set is not as it was.

    Raises:
      LedgerTampered, AnchorError: the ledger is not what once was written.
      LedgerError: the settings name another data set than the campaign was started on.
    """
    folder = folder_of(config)
    if not (folder.root / RECORD).is_file():
        return None
    record = folder.read_record()
    written = record.get(HELD_PLAN)
    if not isinstance(written, Mapping) or written.get("version") != metadata.version("dpal"):
        return None
    if _settings(record.get("config")) != _settings(_dumped(config)):
        return None
    pool, validation = open_sources(config)
    if pool.label_column is None:
        pool = replace(pool, task=validation.task)
    # Read once; whoever reads them later is refused what changed since.
    pool = replace(pool, known=learn_files(pool.paths))
    validation = replace(validation, known=learn_files(validation.paths))
    if not folder.salt.is_file() or written.get("validation") != _committed(folder, validation):
        return None
    try:
        store = open_ledger(config.runtime, create=False)
    except LedgerMissing:
        return None
    with closing(store):
        store.sound(config.name)
        ledger = open_run_ledger(config.name, config.runtime, store)
        if ledger.identity is None:
            return None
        data = held_data(ledger, config.data.dataset)
        plan = plan_as_written(config, written, () if data is None else data.shares)
        if plan is None or not _is_held(ledger, plan, _committed(folder, pool)):
            return None
    return Campaign(
        config=config,
        pool=pool,
        validation=validation,
        class_names=validation.class_names or pool.class_names,
        start=CampaignStart(plan=plan, data=data, earlier=find_earlier(config)),
    )


def _is_held(ledger: CampaignLedger, plan: Plan, pool: str) -> bool:
    """Whether the ledger holds this plan, release by release, on these files."""
    return ledger.holds(plan.digest, pool, plan.releases())


def plan_as_written(
    config: CampaignConfig, written: Mapping[str, Any], blocks: tuple[BlockShare, ...]
) -> Plan | None:
    """The plan that settings and a record make together; None where they make none.

    Args:
      config: the settings.
      written: what `held_plan_record` has under `HELD_PLAN`.
      blocks: what each block of a data set may spend; empty where the campaign is on none.
    """
    try:
        facts = dict(written["facts"])
        measured = facts["measured"]
        acquisition = Acquisition(written["acquisition"])
        wishes = config.settled(acquisition) if config.is_to_be_chosen else config
        spec = wishes.to_spec(
            **{
                **facts,
                "input_shape": tuple(facts["input_shape"]),
                "task": Task(facts["task"]),
                "unit": Unit(facts["unit"]),
                "measured": None
                if measured is None
                else Normalisation(mean=tuple(measured[0]), std=tuple(measured[1])),
                "threshold_start": ThresholdStart(facts["threshold_start"]),
            }
        )
        strategy, figures = Strategy(written["strategy"]), written["figures"]
        return Plan(
            spec=replace(spec, strategy=strategy, blocks=blocks),
            phases=read_phases(written["phases"]),
            figures=None if figures is None else NoisyFigures.of_record(figures),
        )
    except (DpalError, KeyError, TypeError, ValueError):
        return None


def _committed(folder: CampaignFolder, source: Source) -> str:
    """Commits to a source's files, under the campaign's salt."""
    return commitment(folder.salt.read_bytes(), source.files_digest)


def _dumped(config: CampaignConfig) -> dict[str, Any]:
    return with_absolute_paths(config).model_dump(mode="json")


def _settings(dumped: Any) -> dict[str, Any]:
    """All settings but those that say where and how fast."""
    return {key: value for key, value in dict(dumped or {}).items() if key != "runtime"}
