"""The tasks of a campaign, over `dpal.runs`."""

from __future__ import annotations

from prefect.artifacts import create_table_artifact

from dpal.reports.plan_and_phase_tables import plan_table, promise
from dpal.runs import close_phase as closing
from dpal.runs import (
    early_stopping,
    labeling,
    phase_measuring,
    phase_training,
    write_certificate,
)
from dpal.runs import (
    embed_records as embedding,
)
from dpal.runs import prepare_campaign as preparing
from dpal.runs import private_settings_search as searching
from dpal.runs import select_records as selecting
from dpal.runs.campaign import Campaign
from tasks.boundary import releasing_task, task

prepare_campaign = task()(preparing.prepare_campaign)
prepare_ordered = task()(preparing.prepare_ordered)
hold_budget = task()(preparing.hold_budget)
embed_records = task()(embedding.embed_records)
select_records = releasing_task(selecting.select_records)
reach_teachers = task()(labeling.reach_teachers)
ask_labeler = releasing_task(labeling.ask_labeler)  # teachers release votes here
merge_labels = task()(labeling.merge_labels)
search_settings = releasing_task(searching.search_settings)  # trials are charged
train_model = releasing_task(phase_training.train_model)
start_over = releasing_task(phase_training.start_over)  # each is a charge
measure = releasing_task(phase_measuring.measure)  # a release where records are protected
close_phase = task()(closing.close_phase)
end_campaign = task()(early_stopping.end_campaign)
certify = task()(write_certificate.certify)


@task()
def publish_plan(campaign: Campaign) -> None:
    """Shows the plan on the Prefect page."""
    table = plan_table(campaign.certified.summary())
    # Cells are Markdown on that page, and a dash alone would be a list of nothing.
    rows = [["none" if cell == "-" else cell for cell in row] for row in table.rows]
    create_table_artifact(
        table=[dict(zip(table.columns, row, strict=True)) for row in rows],
        key="plan",
        description=f"{table.title}. Promised: {promise(campaign.certified.summary())}.",
    )
