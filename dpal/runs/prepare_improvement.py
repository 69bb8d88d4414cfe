"""From the settings of an improvement to a certified plan, with its start and its data."""

from __future__ import annotations

from dataclasses import replace

from tqdm import tqdm

from dpal.accounting.prior_spend import PriorSpend
from dpal.canonical import file_digest
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import CampaignConfig
from dpal.config.improvement import PublicConfig
from dpal.config.validation import require_public
from dpal.data.inspect_rows import inspect, require_apart, require_match
from dpal.data.sources import Source
from dpal.data.validation_checks import require_same_names
from dpal.errors import ConfigError, DataError, LedgerError, ParameterError
from dpal.files.artifacts import CampaignFolder
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.improvement_plan import (
    ImprovementSpec,
    certify_improvement,
    widest_start,
)
from dpal.planning.public_selection import Guidance, guidance_for
from dpal.privacy import Adjacency, PrivacyTarget, Unit, choose_delta
from dpal.runs.devices import require_device
from dpal.runs.improvement_context import Improving, labeling_job, rotation_weights
from dpal.runs.improvement_start_model import (
    StartModel,
    charged_in,
    finished_folder,
    start_of,
    training_settings,
)
from dpal.runs.labelers import labeler_of
from dpal.runs.open_sources import open_public, require_alike
from dpal.runs.plan_new_campaign import (
    CampaignStart,
    holds_a_plan,
    plan_start,
    require_unregistered,
)
from dpal.runs.prepare_campaign import open_data
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import released_weights
from dpal.runs.unregistered_runs import tell_of_others
from dpal.training.augmentation import require_shift
from dpal.training.embeddings import embedding_width

_EPSILON = 3.0  # of a start that is trained here, where nobody asks for another
_DELTA = 1e-5  # where a declared delta is 0 and nobody asks for another


def prepare_improvement(config: PublicConfig) -> Improving:
    """Checks the device and certifies a plan, before anything is released."""
    require_device(config.runtime)
    improving = plan_improvement(config)
    certified = improving.certified
    notify(
        f"plan certified: {certified.epsilon:.4f} of epsilon {improving.spec.target.epsilon:g} in "
        f"all, the start alone {certified.start_epsilon:.4f}"
    )
    start = improving.start
    if start.data is None and start.private is not None and config.choice.method.reads_private:
        before = improving.spec.before.campaign or ""
        tell_of_others(config.runtime, start.private, config.name, start=before)
    return improving


def plan_improvement(config: PublicConfig) -> Improving:
    """Looks at start and data and certifies a plan. Releases nothing, writes nothing.

    Raises:
      PlanRejected: the promise does not cover the start and what near_private releases.
      ParameterError: the wishes contradict each other or the data.
      LabelError: teachers that are to label are missing or unfit.
    """
    improving = _with_training(config) if config.start.trains else _from_start(config)
    _require_answers(improving)
    return improving


def _from_start(config: PublicConfig) -> Improving:
    """Plans the improvement of a start that is there."""
    start = start_of(config)
    reads = config.choice.method.reads_private
    if reads and start.private is None:
        raise ConfigError(
            "choice.method near_private reads the private records that the start was trained on; "
            "set data.pool to them, or use diverse_public, which needs none"
        )
    target = _target(config, start)
    if reads and config.start.model is not None and start.private is not None:
        _require_votes_of_records(config, start.private, target)
    spec, public = _spec(config, start, target)
    return Improving(config=config, certified=certify_improvement(spec), start=start, public=public)


def _require_answers(improving: Improving) -> None:
    """Finds out that teachers are missing, unfit or asked too much before anything is held."""
    if not improving.files.labels.exists():
        job = labeling_job(improving)
        job.labeler.require_answers(job, {0: improving.spec.choice.labels})


def is_trained(improving: Improving) -> bool:
    """Whether the start is finished and certified; its folder is looked at, not its files."""
    to_train = improving.start.to_train
    return to_train is None or (
        CampaignFolder(to_train.runtime.artifacts / to_train.name).certificate.is_file()
    )


def with_trained_start(improving: Improving) -> Improving:
    """The same, once the start is trained: its weights and its certificate are there."""
    to_train = improving.start.to_train
    if to_train is None:
        return improving
    folder = finished_folder(to_train.runtime, to_train.name)
    document = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    charged, planned = charged_in(document), improving.spec.before.releases
    if not set(planned) <= set(charged):
        raise LedgerError(
            f"campaign {folder.name} was trained by another plan than this improvement's start; "
            "nothing more was released, use the settings that it was trained with, or give "
            "start.name another name"
        )
    before = improving.spec.before.with_more(charged)
    certified = certify_improvement(replace(improving.spec, before=before))
    start = replace(
        improving.start,
        before=before,
        weights=released_weights(folder),
        certificate=folder.certificate,
    )
    # The plan stays the one that was held; what a training drawn again has cost is told.
    told = replace(certified, plan=improving.plan)
    return replace(improving, start=start, certified=told)


def _with_training(config: PublicConfig) -> Improving:
    """Plans the start and its improvement together, before either is begun."""
    total = config.privacy.epsilon or config.start.epsilon or _EPSILON
    if config.start.epsilon is not None and config.start.epsilon > total:
        raise ParameterError.before_release(
            f"start.epsilon {config.start.epsilon:g} is above privacy.epsilon {total:g}, which "
            "covers the start and the rest; lower it or leave it null"
        )
    turned = rotation_weights(config)
    weights = turned if config.start.rotations is not None and turned.is_file() else None
    wanted = config.start.epsilon or total

    def settings(epsilon: float, owners: int) -> CampaignConfig:
        return training_settings(config, rows=owners, epsilon=epsilon, weights=weights)

    def planned(epsilon: float) -> tuple[PriorSpend, CampaignStart]:
        def spec_for(owners: int, unit: Unit, carried: int) -> CampaignSpec:
            spec = opened.spec_for(owners, unit, carried)
            batch = min(config.start.batch_size, owners)
            schedule = replace(spec.schedule, initial=owners, batch_size=batch)
            return replace(spec, schedule=schedule, target=replace(spec.target, epsilon=epsilon))

        candidate = plan_start(settings(epsilon, 1), opened.pool, opened.rows, spec_for)
        releases = tuple(candidate.certified.plan.releases())
        return PriorSpend(campaign=config.start_name, releases=releases), candidate

    require_public(config)
    opened = open_data(settings(wanted, 1))
    before, campaign_start = planned(wanted)
    owners = campaign_start.certified.plan.spec.pool_size
    target = replace(campaign_start.certified.plan.spec.target, epsilon=total)
    start = StartModel(
        weights=None,
        spec=opened.spec.model,
        classes=opened.class_names,
        private=opened.pool,
        validation=opened.validation,
        reading=settings(wanted, owners),
        target=target,
        before=before,
        to_train=settings(wanted, owners),
        data=campaign_start.data,
    )
    spec, public = _spec(config, start, target)
    if config.start.epsilon is None and spec.guidance is not None:
        wanted, before = widest_start(spec, lambda epsilon: planned(epsilon)[0])
        spec = replace(spec, before=before)
        start = replace(start, before=before, to_train=settings(wanted, owners))
    return Improving(config=config, certified=certify_improvement(spec), start=start, public=public)


def _target(config: PublicConfig, start: StartModel) -> PrivacyTarget:
    """What is promised in all; by default what the start promised."""
    asked, declared = config.privacy, config.start.declared
    kept = start.target or declared
    if asked.adjacency is Adjacency.REPLACE_ONE and kept and kept.adjacency is not asked.adjacency:
        raise ParameterError.before_release(
            f"privacy.adjacency {asked.adjacency} is asked for and the start keeps "
            f"{kept.adjacency}, which protects less; leave it out, or start from a model that "
            "keeps it"
        )
    if start.target is not None:
        delta = asked.delta or start.target.delta
        if start.owners is not None:
            if asked.delta is None:
                _require_delta_of_start(start.target, start.owners)
            delta = choose_delta(delta, pool_size=start.owners)
        return replace(start.target, epsilon=asked.epsilon or start.target.epsilon, delta=delta)
    if declared is None:
        raise ConfigError("start.model needs start.certificate or start.declared")
    if config.choice.method.reads_private and not (asked.delta or 0.0) > declared.delta:
        raise ParameterError.before_release(
            f"the declared delta {declared.delta:g} and that of near_private add up; set "
            "privacy.delta above it"
        )
    return PrivacyTarget(
        epsilon=asked.epsilon or declared.epsilon,
        delta=asked.delta or declared.delta or _DELTA,
        adjacency=declared.adjacency,
        unit=declared.unit,
    )


def _require_delta_of_start(start: PrivacyTarget, owners: int) -> None:
    """Requires a start whose delta may be promised; that of `privacy.profile: paper` may not."""
    if start.delta < 1 / owners:
        return
    raise ParameterError.before_release(
        f"privacy.delta is null, and the start's {start.delta:g} is not below 1/{owners:,} (one "
        "over the pool size), so it would allow publishing somebody's record; set privacy.delta "
        f"to {choose_delta(None, pool_size=owners):.3g}, and privacy.epsilon above the start's "
        f"{start.epsilon:g}, which it keeps at its own delta"
    ).about("privacy.delta")


def _spec(
    config: PublicConfig, start: StartModel, target: PrivacyTarget
) -> tuple[ImprovementSpec, Source]:
    """The wishes joined with what is public about the data; and the public records."""
    public, count = _open_public(config, start)
    spec = ImprovementSpec(
        name=config.name,
        target=target,
        accountant=config.privacy.accountant,
        before=start.before,
        choice=config.choice.to_spec(public_records=count),
        guidance=_guidance(config, target),
        fine_tuning=config.fine_tuning.to_spec(),
        model=start.spec,
        public=public.files_digest,
        start_model=None if start.weights is None else file_digest(start.weights),
    )
    # Fine-tuning comes last: what it cannot do is found before anything is held or released.
    require_shift(spec.fine_tuning.shift, spec.model.input_shape, setting="fine_tuning.shift")
    spec.require_rivals()
    spec.require_width(embedding_width(start.architecture(), classes=start.spec.classes))
    return spec, public


def _open_public(config: PublicConfig, start: StartModel) -> tuple[Source, int]:
    """The public records, which must fit the start and belong to no registered data set."""
    public = open_public(start.reading, config.public)
    if public.label_column is None:
        public = replace(public, task=start.spec.task)
    private = () if start.private is None else (start.private,)
    require_alike(*private, start.validation, public)
    for learned in (*private, start.validation):
        require_same_names(learned, public)
    with tqdm(desc="checking data", unit="rec", disable=None, leave=False) as bar:
        held = inspect(public, on_rows=bar.update)
        require_match(held, inspect(start.validation, on_rows=bar.update))
    if labeler_of(config.labeler).reads_pool and not held.fully_labeled:
        raise DataError.before_release(
            f"labeler.kind {config.labeler.kind} needs a label in every row of {public.name}; set "
            "labeler.kind: file to have people label"
        )
    if held.classes > start.spec.classes:
        raise DataError.before_release(
            f"{public.name} has labels above {start.spec.classes - 1}, the highest class of the "
            "start; give public records of its classes"
        )
    require_unregistered(config.runtime, public)
    if start.private is not None:
        require_apart(public, start.private, "a protected record cannot be public")
    require_apart(public, start.validation, "what was learned from cannot be a test")
    return public, held.rows


def _guidance(config: PublicConfig, target: PrivacyTarget) -> Guidance | None:
    if not config.choice.method.reads_private:
        return None
    asked, declared = config.near_private, config.start.declared
    left = target if declared is None else replace(target, delta=target.delta - declared.delta)
    return guidance_for(
        pca_epsilon=asked.pca_epsilon,
        support_epsilon=asked.support_epsilon,
        voters=asked.voters,
        max_norm=asked.max_norm,
        target=left,
    )


def _require_votes_of_records(config: PublicConfig, private: Source, target: PrivacyTarget) -> None:
    """Requires that the records of a model's file can be read one by one, and within no limit.

    Which record of an owner took part is known for campaigns of ours alone, and so is what a
    registered data set has left for this.
    """
    if target.unit is not Unit.RECORD:
        raise ParameterError.before_release(
            "near_private with start.model protects single records, and the start protects unit "
            f"{target.unit}; use diverse_public, or start.campaign"
        )
    if not holds_a_plan(config.runtime, config.name):
        require_unregistered(config.runtime, private)
