"""Asking sites and learning from their answers, as tasks; each can be done again."""

from __future__ import annotations

from dpal.config.capc_retraining import RetrainingConfig
from dpal.reports.render.markdown import markdown_of
from dpal.reports.retraining import retraining_report
from dpal.runs.capc_retraining import (
    Retrained,
    Retraining,
    begin_retraining,
    buy_labels,
    learn_from_bought,
    write_retraining,
)
from dpal.runs.progress_logging import notify
from tasks.boundary import releasing_task, task
from tasks.flow_run_page import page_of, update_artifacts
from tasks.version_with_dvc import version_files


@task()
def prepare_to_ask(config: RetrainingConfig) -> Retraining:
    """Reads settings, keys and records, before anything is asked."""
    return begin_retraining(config)


@releasing_task
def ask_for_labels(retraining: Retraining) -> None:
    """Asks the sites what has no answer yet. The sites are charged, so nothing tries it again."""
    buy_labels(retraining, notify)


@task()
def learn(retraining: Retraining) -> Retrained:
    """Trains with the answers, and without; the same answers give the same model."""
    return learn_from_bought(retraining)


@task()
def report_retraining(retraining: Retraining, retrained: Retrained) -> None:
    """Writes the reports, and shows everybody's on the page of the flow run."""
    notify(f"report: {write_retraining(retraining, retrained)}")
    facts = retrained.facts
    report = retraining_report(facts, facts["figures"], digest=retrained.digest)
    story = markdown_of(report)
    update_artifacts(page_of("capc", retraining.title, retrained.in_words(), story))


@task()
def version_retraining(retraining: Retraining) -> str:
    """Adds what came of it to DVC; returns the hash. What is confidential is never pushed."""
    return version_files(retraining.config.runtime, retraining.folder.released)
