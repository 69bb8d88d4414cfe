"""The tasks of an improvement with public records, over `dpal.runs`."""

from __future__ import annotations

from dpal.runs import (
    fine_tuning,
    improvement_report,
    near_private_hold,
    near_private_releases,
)
from dpal.runs import prepare_improvement as preparing
from tasks.boundary import releasing_task, task

prepare_improvement = task()(preparing.prepare_improvement)
record_improvement = task()(improvement_report.record_improvement)
hold_guidance = task()(near_private_hold.hold_guidance)
release_components = releasing_task(near_private_releases.release_components)
release_support = releasing_task(near_private_releases.release_support)
end_guidance = task()(near_private_hold.end_guidance)
choose_public = task()(fine_tuning.choose_public)
close_improvement = task()(fine_tuning.close_improvement)
draw_central = task()(improvement_report.draw_central)
