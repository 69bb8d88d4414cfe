"""From a configuration to a certified plan that the ledger holds."""

from __future__ import annotations

from prefect.artifacts import create_table_artifact

from dpal.reports.summary import plan_table, promise
from dpal.runs import prepare_campaign as use_case
from dpal.runs.campaign_run import Campaign
from tasks.boundary import task

prepare_campaign = task()(use_case.prepare_campaign)
hold_budget = task()(use_case.hold_budget)


@task()
def publish_plan(campaign: Campaign) -> None:
    """Shows the plan on the Prefect page."""
    table = plan_table(campaign.certified.summary())
    create_table_artifact(
        table=[dict(zip(table.columns, row, strict=True)) for row in table.rows],
        key="plan",
        description=f"{table.title}. Promised: {promise(campaign.certified.summary())}.",
    )
