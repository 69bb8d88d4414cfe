"""One audit: attack what a campaign does to records, with its own code, and write it down."""

from __future__ import annotations

from dpal.audit.findings import AuditReport
from dpal.audit.run import Effort
from dpal.config.campaign import CampaignConfig
from tasks.allow_list import require_allowed
from tasks.audit import run_audit, write_audit
from tasks.boundary import flow
from tasks.campaign import prepare_campaign
from tasks.tracking.runs import reach_tracking

_USUAL = Effort()


@flow(name="audit", retries=0, flow_run_name="audit of {config.name}", validate_parameters=True)
def audit_campaign(config: CampaignConfig, effort: Effort = _USUAL) -> AuditReport:
    """Audits a campaign, started or not, and returns what was found. Charges nothing."""
    require_allowed(config)
    campaign = prepare_campaign(config)
    reach_tracking(campaign)
    report = run_audit(campaign, effort)
    write_audit(campaign, report)
    return report
