"""What an audit found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dpal.privacy import PrivacyTarget

FALSE_ALARM = 1e-6  # of one statistical check; sound code fails it this rarely


class Layer(StrEnum):
    """How close to the mechanism a check looks.

    STEP: assertions on single steps. MECHANISM: statistics of samplers. SELECTION: what one
    record does to a selection, and to logs. ATTACK: canaries, and guessing who was in.
    LEDGER: that one reservation is one draw.
    """

    STEP = "step"
    MECHANISM = "mechanism"
    SELECTION = "selection"
    ATTACK = "attack"
    LEDGER = "ledger"


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """One check.

    Attributes:
      layer: how close it looked.
      what: was checked.
      expected: by the plan.
      measured: on the code as it runs.
      passed: whether both agree.
      likely: the likely defect where they do not.
      claimed: the expected number, where there is one.
      value: the measured number.
      within: how far `value` may be from `claimed` by chance; None where it is a bound.
      is_epsilon: whether claimed and value are epsilons.
      false_alarm: chance that sound code does not pass.
    """

    layer: Layer
    what: str
    expected: str
    measured: str
    passed: bool
    likely: str
    claimed: float | None = None
    value: float | None = None
    within: float | None = None
    is_epsilon: bool = False
    false_alarm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """All findings of one audit.

    Attributes:
      name: of the campaign.
      plan_digest: commits to the plan that was audited.
      target: the promise, with delta, adjacency and unit.
      findings: in order.
      canaries: how many were used, by kind.
      trained: what was trained on canaries, in words; "" where nothing is trained privately.
      ran: epsilon of exactly the training that was run, by the accountant.
    """

    name: str
    plan_digest: str
    target: PrivacyTarget
    findings: tuple[AuditFinding, ...]
    canaries: Mapping[str, int]
    trained: str = ""
    ran: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(finding.passed for finding in self.findings)

    @property
    def failed(self) -> tuple[AuditFinding, ...]:
        """The checks that did not pass."""
        return tuple(finding for finding in self.findings if not finding.passed)

    @property
    def false_alarm(self) -> float:
        """Bound on the chance that sound code fails any check."""
        return sum(finding.false_alarm for finding in self.findings)

    def record(self) -> dict[str, Any]:
        """The report as one JSON object; the contract of `audit.json`."""
        target = self.target
        return {
            "name": self.name,
            "passed": self.passed,
            "plan_digest": self.plan_digest,
            "epsilon": target.epsilon,
            "delta": target.delta,
            "adjacency": target.adjacency.value,
            "unit": target.unit.value,
            "trained": self.trained or "nothing",
            "epsilon_of_what_was_trained": self.ran,
            "canaries": dict(self.canaries),
            "charged": "nothing: no content of the pool was read",
            "false_alarm": self.false_alarm,
            "findings": [
                {**asdict(finding), "layer": finding.layer.value} for finding in self.findings
            ],
        }


def statistical_finding(
    layer: Layer,
    what: str,
    p_value: float,
    *,
    expected: str,
    measured: str,
    likely: str,
    claimed: float | None = None,
    value: float | None = None,
    within: float | None = None,
) -> AuditFinding:
    """A check that passes unless what was seen has a chance below `FALSE_ALARM`."""
    return AuditFinding(
        layer=layer,
        what=what,
        expected=expected,
        measured=measured,
        passed=p_value > FALSE_ALARM,
        likely=likely,
        claimed=claimed,
        value=value,
        within=within,
        false_alarm=FALSE_ALARM,
    )
