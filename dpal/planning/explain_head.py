"""What a fitted head releases of records, and why with this noise, in words."""

from __future__ import annotations

import math

from dpal.mechanisms.head_statistics import HeadStatistics
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.explain_words import Remark, listed
from dpal.planning.linear_head_spec import HeadKind, LinearHead

_WHAT = {
    HeadKind.LEAST_SQUARES: "second moments of its features, and their products with its label",
    HeadKind.PROTOTYPES: "its features to the sum of its class",
}


def head_statistics(spec: CampaignSpec) -> HeadStatistics:
    """Which sums a campaign releases: of fewer numbers, where public records differ in fewer.

    Args:
      spec: that fits a head.
    """
    kept = features = math.prod(spec.model.input_shape)
    if spec.head is not None and spec.validation is None:
        kept = min(features, spec.head.components)
    return HeadStatistics(
        features=kept,
        classes=spec.model.classes,
        task=spec.model.task,
        moments=spec.head is not None and spec.head.kind is HeadKind.LEAST_SQUARES,
    )


def explain_head(certified: CertifiedPlan) -> tuple[Remark, ...]:
    """What leaves in each phase instead of a training's steps, and what its noise is for."""
    head = certified.plan.spec.head
    return () if head is None else (_released(certified.plan, head), _noise(certified))


def _released(plan: Plan, head: LinearHead) -> Remark:
    spec = plan.spec
    sums = head_statistics(spec)
    most = sums.sensitivity(spec.target.adjacency)
    features = math.prod(spec.model.input_shape)
    if spec.validation is None:
        kept = (
            f"{sums.features:,} directions of {features:,} features, those in which the public "
            "validation set differs most"
        )
    else:
        kept = f"all {features:,} features, as no validation record is public"
    text = (
        f"Method {head.kind} releases once for each phase one sum over the records that it "
        f"labels, {sums.coordinates:,} numbers of {kept}. A record is clipped to length 1 and adds "
        f"{_WHAT[head.kind]}; it can change the whole sum by {most:.4f} at most (adjacency "
        f"{spec.target.adjacency}). Sums of earlier phases are added to it, and the model is "
        "solved from them, which costs nothing more."
    )
    numbers = {
        "method": head.kind.value,
        "numbers": sums.coordinates,
        "features": sums.features,
        "sensitivity": most,
    }
    return Remark(topic="What training releases", text=text, numbers=numbers)


def _noise(certified: CertifiedPlan) -> Remark:
    plan = certified.plan
    noises = [phase.training.noise_multiplier for phase in plan.phases]
    text = (
        f"Noise multipliers of the phases are {listed([f'{noise:.4f}' for noise in noises])}: a "
        "record takes part in the release of its own phase and in no other, with certainty, so "
        "that each is the least that its cohort can pay for. Batch size, passes and strategy have "
        "no say."
    )
    return Remark(
        topic="Why this noise",
        text=text,
        numbers={"noise_multiplier": noises[0], "noise_multipliers": noises},
    )
