from __future__ import annotations

from typing import Any

import pytest

from dpal.reports.flow_run_page import Place, campaign_story, outcome, steps_done, story
from dpal.reports.render.markdown import block_in_markdown
from dpal.reports.report import Table

SUMMARY = {
    "name": "clinic",
    "target_epsilon": 8.0,
    "delta": 1e-5,
    "unit": "record",
    "adjacency": "zero_out",
    "phases": [
        {"phase": 0, "cohort_size": 700, "steps": 30},
        {"phase": 1, "cohort_size": 300, "steps": 50},
        {"phase": 2, "cohort_size": 300, "steps": 20},
    ],
}
DONE = [{"phase": 0, "validation_accuracy": 0.436, "campaign_epsilon": 4.0, "labels": 700}]


def test_a_story_says_what_is_promised_spent_and_under_way():
    told = campaign_story(SUMMARY, DONE, now="phase-1 trains 50 private steps.", places=[])
    assert told.startswith("# Campaign clinic\n")
    assert "**Now:** phase-1 trains 50 private steps." in told
    assert "epsilon 8 at delta 1e-05" in told
    assert "`" + "\u2588" * 12 + "\u2591" * 12 + "` epsilon 4.0000 of 8" in told
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines()
            if line.startswith("|")][2:]  # fmt: skip
    assert rows == [
        ["0", "done", "700", "30", "43.60 %", "4.0000"],
        ["1", "under way", "1,000", "50", "-", "-"],
        ["2", "planned", "1,300", "20", "-", "-"],
    ]


def test_before_anything_is_released_the_bar_is_empty():
    told = campaign_story(SUMMARY, [], now="it is certified.", places=[])
    assert "`" + "\u2591" * 24 + "` epsilon 0.0000 of 8" in told
    assert "done" not in told


def test_any_kind_tells_its_own_and_spending_only_once_it_is_known():
    place = Place(name="Report", address="artifacts/better/report.html", why="for everybody")
    known: dict[str, Any] = {
        "now": "it learns",
        "blocks": ("600 public records.",),
        "places": [place],
    }
    told = story("Improvement better", SUMMARY, spent=2.0, **known)
    assert told.startswith("# Improvement better\n")
    assert "` epsilon 2.0000 of 8" in told
    assert "600 public records." in told
    assert "`artifacts/better/report.html` (for everybody)" in told
    before = story("Improvement better", SUMMARY, spent=None, **{**known, "places": []})
    assert "Spent" not in before
    assert "Where to look" not in before


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://127.0.0.1:5000/#/x", "[http://127.0.0.1:5000/#/x](http://127.0.0.1:5000/#/x)"),
        ("artifacts/clinic/report.html", "`artifacts/clinic/report.html`"),
    ],
)
def test_only_a_page_is_a_link(address, shown):
    assert Place(name="Report", address=address, why="read").line() == (
        f"- **Report**: {shown} (read)"
    )


def test_progress_counts_private_steps():
    assert steps_done(SUMMARY, []) == 0
    assert steps_done(SUMMARY, DONE) == 30


def test_the_last_line_says_what_was_reached_and_spent():
    assert (
        outcome(SUMMARY, DONE[-1]) == "finished: validation accuracy 43.60 % at epsilon 4.0000 of 8"
    )


def test_a_cell_of_a_table_only_shows():
    """Names of files, data sets and classes come from elsewhere, also onto Prefect's page."""
    name = '<img src=x onerror="fetch(1)"> | [a](javascript:b) \\ `c`\nsecond line'
    table = Table("t", ("name", "count"), ((name, "1"), ("plain_name", "2")))
    lines = block_in_markdown(table).splitlines()
    assert len(lines) == 4
    assert "<img" not in lines[2] and " [a]" not in lines[2]
    assert "\\[a](javascript:b) \\\\ `c` second line" in lines[2]
    assert lines[2].replace("\\|", "").count("|") == lines[3].count("|") == 3
