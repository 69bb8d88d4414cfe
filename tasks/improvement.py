"""From the settings of an improvement to a certified plan, with its start and its data."""

from __future__ import annotations

from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE
from tqdm import tqdm

from dpal.accounting.before import Before
from dpal.artifacts import CampaignFolder
from dpal.config import CampaignConfig
from dpal.config_public import PublicConfig
from dpal.data.catalog import Source
from dpal.data.inspect import inspect, require_apart, require_match
from dpal.data.readers import raw_batches
from dpal.errors import ConfigError, ParameterError
from dpal.models.registry import build_model
from dpal.planning.choice import Guidance, guidance_for
from dpal.planning.improvement import (
    ImprovementSpec,
    certify_improvement,
    widest_start,
)
from dpal.privacy import PrivacyTarget
from dpal.training.embeddings import embedding_width
from tasks.improving import Improving, rotation_weights
from tasks.planning import open_data
from tasks.saying import say
from tasks.sources import open_public, open_sources
from tasks.standing import Start, plan_start, require_unregistered
from tasks.start_points import (
    StartModel,
    finished_folder,
    last_model,
    start_of,
    training_settings,
)

_EPSILON = 3.0  # of a start that is trained here, where nobody asks for another
_DELTA = 1e-5  # where a declared delta is 0 and nobody asks for another


@task(cache_policy=NO_CACHE)
def prepare_improvement(config: PublicConfig) -> Improving:
    """Certifies a plan before anything is released."""
    improving = plan_improvement(config)
    found = improving.certified
    say(
        f"plan certified: {found.epsilon:.4f} of epsilon {improving.spec.target.epsilon:g} in all, "
        f"the start alone {found.start_epsilon:.4f}"
    )
    return improving


def plan_improvement(config: PublicConfig) -> Improving:
    """Looks at start and data and certifies a plan. Releases nothing, writes nothing.

    Raises:
      PlanRejected: the promise does not cover the start and what near_private releases.
      ParameterError: the wishes contradict each other or the data.
    """
    if config.runtime.store is not None:
        raise ConfigError(
            "runtime.store carries campaigns between machines, and an improvement stays in "
            "runtime.artifacts; leave runtime.store null"
        )
    if config.start.trains:
        return _with_training(config)
    start = start_of(config)
    reads = config.choice.method.reads_private
    if reads and start.private is None:
        raise ConfigError(
            "choice.method near_private reads the private records that the start was trained on; "
            "set data.pool to them, or use diverse_public, which needs none"
        )
    target = _target(config, start)
    spec, public = _spec(config, start, target)
    return Improving(config=config, certified=certify_improvement(spec), start=start, public=public)


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
    start = replace(improving.start, weights=last_model(folder), certificate=folder.certificate)
    return replace(improving, start=start)


def _with_training(config: PublicConfig) -> Improving:
    """Plans the start and its improvement together, before either is begun."""
    total = config.privacy.epsilon or config.start.epsilon or _EPSILON
    if config.start.epsilon is not None and config.start.epsilon > total:
        raise ParameterError(
            f"start.epsilon {config.start.epsilon:g} is above privacy.epsilon {total:g}, which "
            "covers the start and the rest; nothing was released, lower it or leave it null"
        )
    turned = rotation_weights(config)
    weights = turned if config.start.rotations is not None and turned.is_file() else None
    wanted = config.start.epsilon or total
    rows = _rows(open_sources(training_settings(config, rows=1, epsilon=wanted))[0])

    def settings(epsilon: float) -> CampaignConfig:
        return training_settings(config, rows=rows, epsilon=epsilon, weights=weights)

    def planned(epsilon: float) -> tuple[Before, Start]:
        asked = settings(epsilon)
        found = plan_start(
            asked,
            opened.pool,
            opened.rows,
            lambda owners, unit, carried: replace(
                spec := opened.spec_for(owners, unit, carried),
                target=replace(spec.target, epsilon=epsilon),
            ),
        )
        releases = tuple(found.certified.plan.releases())
        return Before(campaign=asked.name, releases=releases), found

    opened = open_data(settings(wanted))
    before, found = planned(wanted)
    target = replace(found.certified.plan.spec.target, epsilon=total)
    start = StartModel(
        weights=None,
        spec=opened.spec.model,
        classes=opened.class_names,
        private=opened.pool,
        validation=opened.validation,
        reading=settings(wanted),
        target=target,
        before=before,
        to_train=settings(wanted),
        data=found.data,
    )
    spec, public = _spec(config, start, target)
    if config.start.epsilon is None and spec.guidance is not None:
        wanted, before = widest_start(spec, lambda epsilon: planned(epsilon)[0])
        spec = replace(spec, before=before)
        start = replace(start, before=before, to_train=settings(wanted))
    return Improving(config=config, certified=certify_improvement(spec), start=start, public=public)


def _target(config: PublicConfig, start: StartModel) -> PrivacyTarget:
    """What is promised in all; by default what the start promised."""
    asked, declared = config.privacy, config.start.declared
    if start.target is not None:
        return replace(
            start.target,
            epsilon=asked.epsilon or start.target.epsilon,
            delta=asked.delta or start.target.delta,
        )
    if declared is None:
        raise ConfigError("start.model needs start.certificate or start.declared")
    if config.choice.method.reads_private and not (asked.delta or 0.0) > declared.delta:
        raise ParameterError(
            f"the declared delta {declared.delta:g} and that of near_private add up; set "
            "privacy.delta above it, nothing was released"
        )
    return PrivacyTarget(
        epsilon=asked.epsilon or declared.epsilon,
        delta=asked.delta or declared.delta or _DELTA,
        adjacency=declared.adjacency,
        unit=declared.unit,
    )


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
    )
    model = build_model(replace(start.spec, weights=None, weights_digest=None))
    spec.require_width(embedding_width(model, classes=start.spec.classes))
    return spec, public


def _open_public(config: PublicConfig, start: StartModel) -> tuple[Source, int]:
    """The public records, which must fit the start and belong to no registered data set."""
    public = open_public(start.reading, config.public)
    if public.label_column is None:
        public = replace(public, task=start.spec.task)
    with tqdm(desc="checking data", unit="rec", disable=None, leave=False) as bar:
        held = inspect(public, on_rows=bar.update)
        require_match(held, inspect(start.validation, on_rows=bar.update))
    require_unregistered(config.runtime, public, coincidence=0.5)
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


def _rows(source: Source) -> int:
    return sum(batch.table.num_rows for batch in raw_batches(source, ["id"]))
