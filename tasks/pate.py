"""The tasks of private voting, over `dpal.runs`."""

from __future__ import annotations

from dpal.runs import (
    baselines,
    ensemble_hold,
    prepare_ensemble,
    query_rounds,
    release_votes,
    student,
    teachers,
)
from dpal.runs import embed_records as embedding
from tasks.boundary import releasing_task, task

embed_records = task()(embedding.embed_records)
hold_ensemble = task()(ensemble_hold.hold_ensemble)
record_ensemble = task()(prepare_ensemble.record_ensemble)
deal_records = task()(teachers.deal_records)
choose_queries = task()(query_rounds.choose_queries)
release_labels = releasing_task(release_votes.release_labels)
close_student = task()(student.close_student)
judge_campaign = task()(baselines.judge_campaign)
judge_non_private = task()(baselines.judge_non_private)
judge_private_knn = releasing_task(baselines.judge_private_knn)
