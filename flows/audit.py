"""One audit: attack what a run does to records, with its own code, and write it down."""

from __future__ import annotations

from dpal.audit.audit_campaign_plan import Effort
from dpal.audit.findings import AuditReport
from dpal.config.campaign import CampaignConfig
from dpal.config.runtime import RunConfig
from dpal.runs.kinds import parse_any
from tasks.allow_list import require_allowed
from tasks.audit import run_audit, write_audit
from tasks.boundary import flow
from tasks.flow_run_page import run_name
from tasks.generic_steps import plan
from tasks.tracking.whole_runs import reach_tracking

_USUAL = Effort()


def audit_name() -> str:
    """The name of the flow run of an audit. Settings may still be unchecked."""
    return f"audit of {run_name()}"


# Settings are checked inside, as they may be of any kind; a form shows those of a campaign.
@flow(name="audit", retries=0, flow_run_name=audit_name, validate_parameters=False)
def audit_run(config: CampaignConfig, effort: Effort = _USUAL) -> AuditReport:
    """Audits a run of any kind, started or not, and returns what was found. Charges nothing.

    Args:
      config: its settings.
      effort: how much to do; more finds smaller defects.
    """
    wanted: RunConfig = config if isinstance(config, RunConfig) else parse_any(config)
    require_allowed(wanted)
    run = plan(wanted)
    reach_tracking(run)
    report = run_audit(run, effort if isinstance(effort, Effort) else Effort(**effort))
    write_audit(run, report)
    return report
