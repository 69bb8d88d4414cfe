"""What `dpal vote --name` releases and shows."""

from __future__ import annotations

from dpal.reports.verify_commands import verify_here
from dpal.reports.vote_report import (
    answer_rates_table,
    recognition_words,
    rule_words,
    vote_cost_table,
)
from dpal.runs.make_report import write_reports
from dpal.runs.open_ledger import key_word
from dpal.runs.vote_account import read_released
from dpal.runs.vote_release import release_ballots
from dpal.runs.vote_request import VoteRequest
from dpal.voting.draw_noisy_outcomes import Released
from flows.cli.terminal import as_typed_here
from flows.cli.vote_view import VoteCostView, modes_of, table_of_modes


def released(request: VoteRequest, *, private: bool) -> VoteCostView:
    """Releases a block, and shows what it says."""
    account, path = release_ballots(request)
    summary = account.certified.summary()
    write_reports(account.folder)
    _, labels = read_released(path)
    tables = [vote_cost_table(summary)]
    if labels.ndim == 2:
        tables.append(answer_rates_table(request.cast.names, labels))
    rows, notes = modes_of(request, True) if private else ([], ())
    if rows:
        tables.append(table_of_modes(rows))
    certificate = account.folder.certificate
    other_teachers = account.folder.read_record()["other_teachers"]
    check = as_typed_here(verify_here(account.folder, key_word(account.runtime)))
    return VoteCostView(
        record={
            **summary,
            "released": str(path),
            "certificate": str(certificate),
            "answered": Released(labels).answered,
            "other_teachers": other_teachers,
            **({"modes": rows, "private": " ".join(notes)} if rows else {}),
        },
        tables=tuple(tables),
        lines=(
            rule_words(summary),
            *notes,
            *recognition_words(other_teachers),
            f"released labels: {path}",
            f"report: {account.folder.report_page}",
            f"check it yourself: {check}",
        ),
    )
