"""From a configuration to a certified plan that the ledger holds."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from dpal.acquisition.scores import score_function
from dpal.config.campaign import CampaignConfig
from dpal.config.validation import declared_validation
from dpal.data.groups import (
    OUTSIDE,
    count_groups,
    measured_owners,
    read_groups,
    require_other_groups,
    within_cap,
)
from dpal.data.importing.recipe import tells_of_held_out
from dpal.data.inspect_rows import RowHashes, inspect, require_match
from dpal.data.known_records import COINCIDENCE
from dpal.data.labeling_state import write_start
from dpal.data.parquet import schema_of
from dpal.data.pool_file_digests import as_recorded, require_as_recorded
from dpal.data.public_statistics import public_statistics
from dpal.data.sources import Content, Source, missing_label
from dpal.data.validation_checks import (
    class_remarks,
    require_numbering,
    require_other_records,
    require_same_names,
    scale_remarks,
)
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import RECORD
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.ledger.data_set_accounts import data_set
from dpal.models.build_model import build_model
from dpal.models.normalisation import Normalisation
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, ThresholdStart
from dpal.privacy import Unit
from dpal.reports.plan_and_phase_tables import other_strategy, promise
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.campaign import Campaign
from dpal.runs.campaign_from_held_plan import held_campaign, held_plan_record
from dpal.runs.chosen_acquisition import record_choice, settle_acquisition
from dpal.runs.devices import require_device
from dpal.runs.kinds import folder_of
from dpal.runs.labelers import labeler_of
from dpal.runs.model_description import describe_model
from dpal.runs.open_ledger import open_ledger
from dpal.runs.open_sources import open_sources, require_two_classes
from dpal.runs.plan_new_campaign import (
    CampaignStart,
    SpecFor,
    find_participants,
    locate,
    plan_for,
    require_unregistered,
    weights_for,
)
from dpal.runs.progress_logging import notify, notify_here
from dpal.runs.protected_validation_overlap import VALIDATION_FILES, validation_commitment
from dpal.runs.run import hold
from dpal.runs.unregistered_runs import tell_of_others
from dpal.runs.validation_reuse_warning import tell_of_other_measurements
from dpal.training.augmentation import require_images
from dpal.training.checkpoints import latest_weights
from dpal.training.embeddings import last_layer


@dataclass(frozen=True, kw_only=True)
class OpenedData:
    """A campaign's data, looked at, and what it makes of the wishes.

    Attributes:
      pool: private records.
      validation: records that figures are measured on, public or protected.
      class_names: names in class order; empty when the data has none.
      rows: records in the pool.
      owners: groups in the pool, where the settings protect them; else as many as records.
      unit: whom the settings protect.
      remarks: what a person should know of the labels, who may see the records.
      compared: with how many parts of data sets protected validation records were compared; None
        where they are public.
      spec_for: the wishes, joined with what is public about the data, for a number of
        owners that take part, a unit, and a number of labels carried over.
      spec_of: the same for other wishes on this data.
    """

    pool: Source
    validation: Source
    class_names: tuple[str, ...]
    rows: int
    owners: int
    unit: Unit
    remarks: tuple[str, ...]
    compared: int | None
    spec_for: SpecFor
    spec_of: Callable[[CampaignConfig], SpecFor]

    @property
    def spec(self) -> CampaignSpec:
        """The wishes where every record, or group, takes part."""
        return self.spec_for(self.owners, self.unit, 0)


def open_data(config: CampaignConfig) -> OpenedData:
    """Looks at the data and checks that the wishes fit it. Releases nothing, writes nothing.

    Raises:
      ConfigError: nothing is declared of the validation set.
    """
    protected = declared_validation(config).protected
    pool, validation = open_sources(config)
    if protected:
        _require_untold(pool, validation)
    if pool.label_column is None:
        pool = replace(pool, task=validation.task)
    folder = folder_of(config)
    begins = not (folder.root / RECORD).is_file()
    salt = secrets.token_bytes(32)
    seen = (RowHashes(salt), RowHashes(salt)) if begins else (None, None)
    with tqdm(desc="checking data", unit="rec", disable=None, leave=False) as bar:
        pool_holds = inspect(pool, on_rows=bar.update, seen=seen[0])
        validation_holds = inspect(validation, on_rows=bar.update, seen=seen[1])
    require_match(pool_holds, validation_holds)
    pool = replace(pool, known=pool_holds.files)
    validation = replace(validation, known=validation_holds.files)
    # Tests resemble what is tested, so that only a public file that is mostly known contents is
    # taken for the records themselves. Protected records are promised something of their own.
    compared = require_unregistered(
        config.runtime, validation, coincidence=COINCIDENCE if protected else 0.5
    )
    class_names = validation.class_names or pool.class_names
    classes = max(len(class_names), validation_holds.classes)
    require_two_classes(classes, validation.task)
    if labeler_of(config.labeler).reads_pool:
        if pool.label_column is None:
            raise missing_label(
                schema_of(pool.paths[0]),
                f"pool file {pool.paths[0]}",
                config.data.label_column,
                "or set labeler.kind: file to have people label",
            )
        if not pool_holds.fully_labeled:
            raise DataError(
                f"labeler.kind {config.labeler.kind} needs a label in every row of {pool.name}; "
                "set labeler.kind: file to have people label"
            )
        if pool_holds.classes > classes:
            raise DataError(
                f"{pool.name} has labels above {classes - 1}, the highest class of "
                f"{validation.name}; use a validation set that covers all classes"
            )
    remarks: tuple[str, ...] = ()
    held = None if begins else folder.read_record().get("config", {}).get("privacy", {})
    if seen[0] and seen[1]:
        require_same_names(pool, validation)
        require_numbering(pool_holds, validation_holds, names=len(class_names))
        require_other_records(*seen, names=(pool.name, validation.name), protected=protected)
        remarks = class_remarks(pool_holds, validation_holds, class_names)
        unscaled = not protected and not config.data.normalisation.kind.given
        if validation.content is Content.FEATURES and unscaled:
            remarks += scale_remarks(public_statistics(validation)[1])

    grouped = config.privacy.unit is Unit.GROUP
    column = _owner_column(config) if grouped or protected else None
    owners = pool_holds.rows
    if grouped and column is not None:
        owners = count_groups(read_groups(pool, column))
    measured = None
    if config.data.normalisation.measured:
        mean, std = public_statistics(validation)
        measured = Normalisation(mean=mean, std=std)

    measured_records, measured_groups = None, None
    if protected:
        measured_records = validation_holds.rows
    if protected and column is not None:
        require_other_groups(pool, validation, column)
        most = declared_validation(config).group_records
        kept = measured_owners(validation, column, most)
        measured_records, measured_groups = kept.rows.size, count_groups(kept.owners)

    def spec_of(wishes: CampaignConfig) -> SpecFor:
        def spec_for(owners: int, unit: Unit, carried: int) -> CampaignSpec:
            return wishes.to_spec(
                pool_size=owners,
                input_shape=pool_holds.input_shape,
                classes=classes,
                task=validation.task,
                unit=unit,
                carried=carried,
                measured=measured,
                threshold_start=ThresholdStart.PLAIN if protected else _threshold_start(held),
                protected_records=measured_records,
                protected_groups=measured_groups,
                group_column=column if grouped else None,
                draws_openly=_draws_openly(held),
                offers_all=held is not None and "candidates" not in held,
            )

        return spec_for

    opened = OpenedData(
        pool=pool,
        validation=validation,
        class_names=class_names,
        rows=pool_holds.rows,
        owners=owners,
        unit=config.privacy.unit,
        remarks=remarks,
        compared=compared if protected else None,
        spec_for=spec_of(config),
        spec_of=spec_of,
    )
    # What is looked at here is the same for every acquisition that may be chosen.
    named = config.settled(Acquisition.RANDOM) if config.is_to_be_chosen else config
    spec = spec_of(named)(owners, config.privacy.unit, 0)
    if begins and spec.head is None:
        spec.schedule.require_labels_for_batch()
    require_images(spec.recipe.augmentation, spec.model.input_shape)
    model = build_model(spec.model)  # one that does not fit is refused before it costs
    if not spec.acquisition.is_random:
        function = score_function(spec.acquisition, task=spec.model.task)
        if function.reads_embeddings:
            last_layer(model, classes=spec.model.classes)
    return opened


def _owner_column(config: CampaignConfig) -> str | None:
    """Says whose records are, in the pool and the validation set. None where each is alone.

    Raises:
      LedgerError: the data set is not registered.
      ConfigError: records of groups are asked for, and the data set has no groups.
    """
    name = config.data.dataset
    if name is None:
        return config.data.group_column
    with closing(open_ledger(config.runtime, create=False)) as store:
        column = data_set(store.of_data_set(name), name).limit.group_column
    if column is None and config.privacy.unit is Unit.GROUP:
        raise ConfigError.before_release(
            f"privacy.unit group lets all records of each group take part, and data set {name} "
            "protects single records; leave it out"
        ).about("privacy.unit", "no groups")
    most = declared_validation(config).group_records
    if column is None and most != 1:
        raise ConfigError.before_release(
            f"validation.group_records {most} counts records of groups, and data set {name} "
            "protects single records; leave it out"
        ).about("validation.group_records", "no groups")
    return column


def _require_untold(pool: Source, validation: Source) -> None:
    """Requires that no number of protected records stands in the files, and so in every model."""
    told = [path for path in (*pool.paths, *validation.paths) if tells_of_held_out(path)]
    if told:
        raise ConfigError.before_release(
            f"the columns of {told[0].name} became numbers by what its held-out records are (their "
            "smallest and largest values, say), which leaves with every model, and "
            "validation.protected allows that nobody; import it like a public table of others "
            "(dpal import --like), or declare the held-out records public (validation: {public: "
            "true, why: in words})"
        ).about("validation", "told")


# What a campaign that has begun was planned with, as its plan is held. `held` is what it recorded
# of privacy; None where it begins now.


def _threshold_start(held: Mapping[str, Any] | None) -> ThresholdStart:
    """Where thresholds are looked for."""
    # Versions that knew no other start than the plain one recorded no cap either.
    plain = held is not None and "label_cap" not in held
    return ThresholdStart.PLAIN if plain else ThresholdStart.VALIDATION


def _draws_openly(held: Mapping[str, Any] | None) -> bool:
    """Whether chance draws openly where settings do not say."""
    # Versions whose default it was recorded false, or nothing.
    return held is not None and held.get("secret_draw", False) is False


def prepare(config: CampaignConfig) -> Campaign:
    """Opens the data, plans, and certifies the plan. Releases nothing, writes nothing."""
    opened = open_data(config)
    for remark in opened.remarks:
        notify_here(remark)
    return Campaign(
        config=config,
        pool=opened.pool,
        validation=opened.validation,
        class_names=opened.class_names,
        start=plan_opened(config, opened),
    )


def plan_opened(config: CampaignConfig, opened: OpenedData) -> CampaignStart:
    """Plans a campaign within what its data set has left. Releases nothing, writes nothing.

    Where the acquisition is `auto`, it is chosen first, on public records.

    Raises:
      DataBudgetExceeded: the data set has not enough left.
      DataError: the pool's records are not all in the data set, or they are in one and the
        configuration does not say so.
    """
    participants = find_participants(config, opened.pool, opened.owners)
    settled = settle_acquisition(config, opened.validation, participants, opened.spec_of)
    start = plan_for(participants, opened.spec_of(settled.config))
    compared = [one for one in (start.compared, opened.compared) if one is not None]
    # Parts are only ever added: what was compared with fewer was compared first.
    return replace(start, choice=settled.choice, compared=min(compared, default=None))


def prepare_campaign(config: CampaignConfig, *, leads: bool = True) -> Campaign:
    """Checks device and data and certifies a plan, before anything is released.

    An acquisition that public records chose is written down first. Who leads a campaign and leaves
    its training to a work pool needs no device of its own.
    """
    require_device(config.runtime, leads=leads)
    campaign = prepare(config)
    if leads and campaign.start.choice is not None:
        record_choice(config, campaign.start.choice)
    notify(f"plan certified: {campaign.certified.epsilon:.4f} of "
        f"{promise(campaign.certified.summary())}")  # fmt: skip
    if (used := campaign.plan.spec.strategy) is not config.strategy:
        notify(other_strategy(used, config.strategy))
    if leads and campaign.start.data is None:
        tell_of_others(config.runtime, campaign.pool, config.name)
    if leads:
        tell_of_other_measurements(campaign)
    return campaign


def prepare_ordered(config: CampaignConfig) -> Campaign:
    """Prepares a campaign for whoever trains a phase of it and does not lead it.

    Where the ledger holds its very plan, of these very files, that stands for looking at the data
    and for planning and certifying anew.
    """
    require_device(config.runtime, leads=False)
    campaign = held_campaign(config)
    if campaign is None:
        return prepare_campaign(config, leads=False)
    notify(f"plan {campaign.plan.digest[:12]} is the one that the ledger holds, certified by who "
        "leads")  # fmt: skip
    return campaign


def hold_budget(campaign: Campaign) -> None:
    """Sets the plan's worst case aside in the ledger and writes the pool's start."""
    plan, folder, choice = campaign.plan, campaign.folder, campaign.start.choice
    if plan.figures is not None and (folder.root / RECORD).is_file():
        _require_measured_before(campaign)
    if folder.row_groups.is_file():  # versions that knew none left none
        recorded = folder.row_groups.read_text(encoding="utf-8")
        require_as_recorded(recorded, campaign.pool.paths, campaign.pool.known)
    with campaign.ledger() as ledger:
        hold(
            campaign,
            ledger,
            campaign.pool.files_digest,
            data=campaign.start.data,
            compared=campaign.start.compared,
            changes=_changes(campaign),
        )
    if campaign.pool.known and not folder.row_groups.is_file():
        write_text(folder.row_groups, as_recorded(campaign.pool.known))
    folder.write_record(
        {
            "name": campaign.config.name,
            "plan": campaign.certified.summary(),
            "task": plan.spec.model.task.value,
            "public_weights": _public_weights(campaign),
            "weights_for": weights_for(plan.spec),
            "classes": plan.spec.model.classes,
            "class_names": list(campaign.class_names),
            "model": describe_model(
                plan.spec.model, plan.spec.extractor, campaign.pool, campaign.class_names
            ),
            "config": with_absolute_paths(campaign.config).model_dump(mode="json"),
            **held_plan_record(campaign),
            **({} if choice is None else {"acquisition_choice": dict(choice)}),
            **(
                {}
                if plan.figures is None
                else {VALIDATION_FILES: validation_commitment(folder, campaign.validation)}
            ),
        }
    )
    if not folder.start.exists():
        _write_start(campaign)


def _require_measured_before(campaign: Campaign) -> None:
    """Requires that a campaign goes on with the protected records that it began with.

    Who was measured is compared with whoever joins a data set later.

    Raises:
      DataError: the validation set is another one, or has changed.
    """
    before = campaign.folder.read_record().get(VALIDATION_FILES)
    if before not in (None, validation_commitment(campaign.folder, campaign.validation)):
        raise DataError.before_release(
            f"{campaign.validation.name} is not the protected validation set that campaign "
            f"{campaign.folder.name} began with; restore it, or choose another name for a new "
            "campaign"
        )


def _write_start(campaign: Campaign) -> None:
    """Writes who takes part, and, before it, the weights to start from."""
    folder, spec, earlier = campaign.folder, campaign.plan.spec, campaign.start.earlier
    if earlier is not None:
        with atomic_write(folder.start_model) as temporary:
            temporary.write_bytes(latest_weights(earlier.model, earlier.optimizer))
    if campaign.start.data is None:
        groups = None
        if spec.groups is not None:
            groups = within_cap(read_groups(campaign.pool, spec.groups.column), spec.groups.labels)
        write_start(campaign.pool, folder.start, groups=groups)
        return
    with campaign.ledger() as ledger:
        located = locate(campaign.config, campaign.pool, ledger.store)
    taking = np.isin(located.blocks, [share.block for share in spec.blocks])
    groups = None
    if spec.groups is not None:
        owners = np.where(taking, located.owners, OUTSIDE).astype(np.int64)
        groups = within_cap(owners, spec.groups.labels)
    write_start(
        campaign.pool,
        folder.start,
        blocks=located.blocks,
        takes_part=located.eligible & taking,
        groups=groups,
    )


def _changes(campaign: Campaign) -> str:
    """Settings that decide a plan and are not as the campaign was started with."""
    folder = campaign.folder
    if not (folder.root / RECORD).is_file():
        return ""
    record = folder.read_record()
    before = _deciding(record["config"])
    now = _deciding(with_absolute_paths(campaign.config).model_dump(mode="json"))
    changes = [
        f"{key} was {json.dumps(before.get(key))}, is {json.dumps(value)}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    shares = [_share_in(settings) for settings in (record["config"], campaign.config.model_dump())]
    if shares[0] != shares[1]:
        changes.append("validation.share was {}, is {}".format(*map(json.dumps, shares)))
    for key, digest in _public_weights(campaign).items():
        if record.get("public_weights", {}).get(key) != digest:
            changes.append(f"what lies at {key} is not what lay there then")
    return ", ".join(changes)


def _share_in(settings: Mapping[str, Any]) -> float | None:
    """What a campaign holds out of its pool; of versions that knew no declaration, nothing."""
    share: float | None = (settings.get("validation") or {}).get("share")
    return share


def _public_weights(campaign: Campaign) -> dict[str, str | None]:
    """Digests of what the campaign starts from, by setting."""
    spec = campaign.plan.spec
    return {
        "model.weights": spec.model.weights_digest,
        "data.backbone.weights": spec.extractor.weights_digest,
    }


def _deciding(values: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted key, but for those that decide no plan."""
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("runtime", "labeler", "release", "stop", "validation"):
            continue
        if name == "data":
            settings |= {f"data.{key}": value.get(key) for key in ("extractor", "normalisation")}
        elif isinstance(value, dict):
            settings |= {f"{name}.{key}": nested for key, nested in _deciding(value).items()}
        else:
            settings[name] = value
    return settings
