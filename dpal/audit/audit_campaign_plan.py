"""All attacks on the plan of a campaign, in order of how far each goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from dpal import check
from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.audit.attack import attack_findings, training_releases
from dpal.audit.canaries import train_on_canaries, with_fewer_steps
from dpal.audit.check_poisson_sampling import inclusion_findings
from dpal.audit.findings import AuditFinding, AuditReport
from dpal.audit.guess_from_selection import canaries_of, replay_findings
from dpal.audit.logs import log_findings
from dpal.audit.noise import noise_findings
from dpal.audit.one_draw_per_reservation import drill_findings
from dpal.audit.samplers import sampler_findings
from dpal.audit.selections import selection_findings
from dpal.audit.training_step_checks import step_findings
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec
from dpal.randomness import BitSource

_RECORDS = 40  # whose single steps are looked at
_MISLABELED = 400  # records that serve as canaries with wrong labels, at most
_FEW = 20  # canaries of the run that is listened to


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much an audit does; more finds smaller defects.

    Attributes:
      canaries: with a gradient of their own.
      most_steps: of training; a longer plan is shortened in proportion.
      draws: from each sampler.
      physical_batch: records per backward pass.
    """

    canaries: int = 1000
    most_steps: int = 400
    draws: int = 1 << 22
    physical_batch: int = 256

    def __post_init__(self) -> None:
        check.at_least(10, canaries=self.canaries)
        check.at_least(1 << 16, draws=self.draws)
        check.at_least(1, most_steps=self.most_steps, physical_batch=self.physical_batch)


def audit(
    plan: Plan,
    inputs: Tensor,
    labels: Tensor,
    *,
    effort: Effort,
    scratch: Path,
    fresh: Callable[[], BitSource],
    say: Callable[[str], None] = lambda message: None,
    on_step: Callable[[], None] = lambda: None,
) -> AuditReport:
    """Attacks a plan with its own code, on records that nobody promised to protect.

    Nothing is charged: no record of the pool is read.

    Args:
      plan: whose mechanisms, rates, noise and steps are audited.
      inputs: (n, *input_shape) float32 records of the validation set, as a model sees them.
      labels: (n,) class numbers.
      effort: how much to do.
      scratch: an empty folder for the drill of a ledger.
      fresh: gives a new stream of noise, `dpal.randomness.secure` in earnest.
      say: told what is being done.
      on_step: called after each step of training on canaries.
    """
    check.at_least(2, **{"validation records": len(inputs)})
    if plan.spec.head is not None:
        raise ParameterError.before_release(
            f"an audit attacks the steps of DP-SGD, and training.method {plan.spec.head.kind} has "
            "none: each phase releases one sum with Gaussian noise"
        )
    spec, physical = plan.spec, effort.physical_batch
    few, few_labels = inputs[:_RECORDS], labels[:_RECORDS]
    ran = with_fewer_steps(plan, most_steps=effort.most_steps)
    wrong = min(len(inputs), _MISLABELED)
    findings: list[AuditFinding] = []

    say("audit: single steps and their noise")
    for clipped, at in _clipped_alike(plan):
        found = [
            *step_findings(
                clipped, at, few, few_labels, physical_batch=physical, rng=fresh()
            ),
            *noise_findings(
                clipped, at, draws=effort.draws, physical_batch=physical, fresh=fresh
            ),
        ]  # fmt: skip
        norm = clipped.optimizer.max_grad_norm
        trial = "" if clipped is spec else f", at max_grad_norm {norm:g}"
        findings += [replace(one, what=f"{one.what}{trial}") for one in found]
    say("audit: batches and samplers")
    findings += inclusion_findings(plan, draws=effort.draws, rng=fresh())
    findings += sampler_findings(plan, draws=effort.draws, rng=fresh())
    say("audit: selections of simulated records")
    findings += selection_findings(plan, fresh=fresh)

    def briefly() -> None:
        train_on_canaries(with_fewer_steps(plan, most_steps=1), few, few_labels, canaries=_FEW,
                          physical_batch=physical, fresh=fresh)  # fmt: skip

    findings += log_findings(
        plan, few, few_labels, physical_batch=physical, rng=fresh(), train=briefly
    )
    findings += replay_findings(plan, draws=effort.draws, fresh=fresh)
    steps, planned = ran.steps, plan.steps
    say(f"audit: training {steps:,} steps on {effort.canaries + wrong:,} canaries")
    trained = train_on_canaries(ran, inputs[:wrong], labels[:wrong], canaries=effort.canaries,
                                physical_batch=physical, fresh=fresh, on_step=on_step)  # fmt: skip
    findings += attack_findings(trained, ran)
    say("audit: a drill of the ledger")
    findings += drill_findings(plan, scratch, rng=fresh())
    return AuditReport(
        name=spec.name,
        plan_digest=plan.digest,
        target=spec.target,
        findings=tuple(findings),
        canaries={
            "with a gradient of their own": effort.canaries,
            "validation records with wrong labels": wrong,
            "simulated scores": sum(
                canaries_of(selecting)
                for selecting in {
                    type(phase.selection): phase for phase in plan.phases if phase.selection.events
                }.values()
            ),
        },
        trained=(
            f"all {planned:,} steps of the plan"
            if steps == planned
            else f"{steps:,} of the plan's {planned:,} steps, in proportion by phase"
        ),
        ran=campaign_epsilon(training_releases(ran), spec.target),
    )


def _clipped_alike(plan: Plan) -> Iterator[tuple[CampaignSpec, TrainingPhase]]:
    """The campaign's own training, and a trial of a search for each other clipping norm."""
    spec = plan.spec
    yield spec, plan.phases[0].parts[-1]
    if plan.trial is not None:
        others = {tried.max_grad_norm: tried for tried in spec.trials}
        others.pop(spec.optimizer.max_grad_norm)
        for tried in others.values():
            yield replace(spec, optimizer=tried, search=None), plan.trial
