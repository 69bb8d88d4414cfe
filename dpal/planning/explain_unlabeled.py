"""What becomes of the records that nobody labels, in words."""

from __future__ import annotations

from dpal.planning.campaign_plan import CertifiedPlan
from dpal.planning.explain_words import Remark

TOPIC = "Unlabeled records"


def unlabeled(certified: CertifiedPlan) -> Remark:
    """Whether they train, how long, and what they end with."""
    plan, promised = certified.plan, certified.plan.spec.target.epsilon
    records, last, members = plan.spec.unlabeled, plan.phases[-1], plan.spec.members
    if not last.is_self_training:
        spent = certified.never_selected.spent.epsilon_pld
        text = (
            f"{records:,} {members} stay unlabeled and train nothing. They end at epsilon "
            f"{spent:.4f} of {promised:g}; self_training would use what is left."
            if records
            else f"None: the schedule buys labels for all {members}."
        )
        return Remark(topic=TOPIC, text=text, numbers={"records": records, "epsilon": spent})
    epsilon, training = certified.cohorts[-1].spent.epsilon_pld, last.training
    text = (
        f"{records:,} {members} stay unlabeled. In phase {last.index} they train for "
        f"{last.steps:,} steps at noise {training.noise_multiplier:.4f}, on labels that the "
        f"released model of phase {last.index - 1} gives them, and end at epsilon {epsilon:.4f} of "
        f"{promised:g}. The labeled do not train then"
    )
    if plan.spec.secret_draw:
        text += (
            ". That the unlabeled lose something takes away a part of what the secret of the draw "
            "gives: the labeled train at more noise than without this phase"
        )
    return Remark(
        topic=TOPIC,
        text=f"{text}.",
        numbers={
            "records": records,
            "epsilon": epsilon,
            "steps": last.steps,
            "noise_multiplier": training.noise_multiplier,
            "sample_rate": training.sample_rate_new,
        },
    )
