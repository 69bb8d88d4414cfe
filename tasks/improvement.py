"""The tasks of an improvement with public records, over `dpal.runs`."""

from __future__ import annotations

from dpal.runs import (
    improvement_outputs,
    learn_from_public,
    near_private_hold,
    near_private_releases,
)
from dpal.runs import prepare_improvement as preparing
from tasks.boundary import releasing_task, task

prepare_improvement = task()(preparing.prepare_improvement)
record_improvement = task()(improvement_outputs.record_improvement)
hold_guidance = task()(near_private_hold.hold_guidance)
release_components = releasing_task(near_private_releases.release_components)
release_support = releasing_task(near_private_releases.release_support)
end_guidance = task()(near_private_hold.end_guidance)
choose_public = task()(learn_from_public.choose_public)
close_improvement = task()(learn_from_public.close_improvement)
draw_central = task()(improvement_outputs.draw_central)
