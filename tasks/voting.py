"""The tasks of private voting, over `dpal.runs`."""

from __future__ import annotations

from dpal.runs import baselines, ensemble, student, teachers, voting
from tasks.boundary import releasing_task, task

prepare_ensemble = task()(ensemble.prepare_ensemble)
hold_ensemble = task()(student.hold_ensemble)
record_ensemble = task()(student.record_ensemble)
deal_records = task()(teachers.deal_records)
train_teachers = task()(teachers.train_teachers)
release_labels = releasing_task(student.release_labels)
train_on_votes = task()(student.train_on_votes)
close_student = task()(student.close_student)
certify_student = task()(voting.certify)
judge_campaign = task()(baselines.judge_campaign)
judge_non_private = task()(baselines.judge_non_private)
judge_private_knn = releasing_task(baselines.judge_private_knn)
