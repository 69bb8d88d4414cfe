"""From settings of private voting to certified teachers."""

from __future__ import annotations

from prefect.cache_policies import NO_CACHE

from dpal.config.voting import PateConfig
from dpal.runs.ensemble import Ensemble, plan_ensemble
from dpal.runs.notify import notify
from dpal.runs.unregistered_runs import tell_of_others
from tasks.boundary import task


@task(cache_policy=NO_CACHE)
def prepare_ensemble(config: PateConfig) -> Ensemble:
    """Certifies an account before anything is released."""
    ensemble = plan_ensemble(config)
    target = ensemble.spec.target
    notify(
        f"plan certified: {ensemble.certified.epsilon:.4f} of epsilon {target.epsilon:g} for "
        f"{sum(ensemble.spec.blocks):,} queries, sigma {ensemble.spec.rule.sigma:.4g}"
    )
    if config.data.dataset is None:
        tell_of_others(config.runtime, ensemble.pool, config.name)
    return ensemble
