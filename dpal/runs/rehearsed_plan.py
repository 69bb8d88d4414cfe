"""A certified plan, rehearsed on the campaign's own validation set where that is public.

What is read is public by declaration, so a rehearsal costs no budget and writes nothing.
"""

from __future__ import annotations

from tqdm import tqdm

from dpal.config.campaign import CampaignConfig
from dpal.config.validation import declared_validation
from dpal.data.labeling_state import load_all
from dpal.data.sources import Source
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan
from dpal.privacy import Unit
from dpal.runs.chosen_acquisition import MOST_RECORDS, REHEARSALS
from dpal.runs.plan_new_campaign import CampaignStart
from dpal.simulation.choose_acquisition import split_in_halves
from dpal.simulation.rehearse_plan import ExpectedFigures, expected_figures

_FOR_ALL_LABELS = (
    4  # public records for each label: half of them are a pool, of which half is labeled
)


def rehearse_start(
    config: CampaignConfig, validation: Source, start: CampaignStart
) -> ExpectedFigures:
    """Rehearses what a campaign would begin. Releases nothing, writes nothing.

    Args:
      config: what the person wrote.
      validation: the labeled records of its validation set.
      start: its plan, and what it begins with.

    Raises:
      ParameterError: the validation set is protected or too small, or the plan is of a kind that
        single public records cannot rehearse; the message says why.
    """
    plan = start.certified.plan
    _require_rehearsable(config, plan)
    inputs, labels = load_all(validation)
    wanted = max(MOST_RECORDS, _FOR_ALL_LABELS * sum(plan.spec.schedule.cohort_sizes))
    halves = split_in_halves(inputs, labels, runs=REHEARSALS, most=wanted)
    with tqdm(total=REHEARSALS, desc="rehearsing", disable=None, leave=False) as bar:

        def on_rehearsal(run: int) -> None:
            bar.update()

        return expected_figures(
            plan,
            halves,
            physical_batch=config.runtime.physical_batch,
            on_rehearsal=on_rehearsal,
        )


def require_rehearsable_settings(config: CampaignConfig) -> None:
    """Requires a campaign that starts afresh and protects single records, as public ones stand for.

    Raises:
      ParameterError: it goes on with an earlier model, or protects groups.
    """
    if config.start_from is not None:
        raise ParameterError(
            f"the campaign goes on with the model of {config.start_from}, which has learned from "
            "private records, and what is shown here is public; rehearse without start_from"
        )
    if config.privacy.unit is Unit.GROUP:
        raise ParameterError(
            "the plan protects groups, and rehearsals are of single records; their figures would "
            "be too good, and compare ways of selecting only with privacy.unit record"
        )


def _require_rehearsable(config: CampaignConfig, plan: Plan) -> None:
    """Requires public records, and a plan that they can stand in for."""
    spec, place = plan.spec, config.data.validation or "validation.share"
    if declared_validation(config).protected:
        raise ParameterError(
            f"{place} is protected, and a rehearsal trains and measures on it without noise; it "
            "needs a validation set that is public"
        )
    require_rehearsable_settings(config)
    if spec.blocks:
        raise ParameterError(
            f"records of data set {spec.dataset} have spent what public records have not, and "
            "train as much as is left of each"
        )
