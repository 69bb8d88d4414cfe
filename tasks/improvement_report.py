"""Record, certificate and pictures of an improvement."""

from __future__ import annotations

from prefect.cache_policies import NO_CACHE

from dpal.runs import improvement_report
from dpal.runs.improvement_run import Improving
from tasks.boundary import task
from tasks.fine_tuning import choice_file

record_improvement = task(cache_policy=NO_CACHE)(improvement_report.record_improvement)
certify_improved = task(cache_policy=NO_CACHE)(improvement_report.certify_improved)


@task(cache_policy=NO_CACHE)
def draw_central(improving: Improving) -> None:
    """Draws public records for the report, where they are images."""
    improvement_report.draw_central(improving, choice_file(improving))
