"""What `dpal plan --rehearse` shows: the figures that a plan can be expected to reach."""

from __future__ import annotations

from dpal.reports.report import Table, table
from dpal.reports.validation_figures import figure_words
from dpal.simulation.rehearse_plan import ExpectedFigures


def expected_figures_table(expected: ExpectedFigures) -> Table:
    """The headline figure after each phase, with its interval, beside the labels that it took."""
    name = figure_words(expected.figure)
    return table(
        f"Expected, by {expected.rehearsals} rehearsals on public records; mean ± half width of an "
        "interval of about 95 %",
        (
            {
                "phase": phase.phase,
                "labels": f"{phase.labels:,}",
                "labels in rehearsals": f"{phase.rehearsed_labels:,}",
                f"expected {name} %": f"{100 * phase.mean:.1f} ± {100 * phase.half_width:.1f}",
            }
            for phase in expected.phases
        ),
    )


def expected_words(expected: ExpectedFigures) -> list[str]:
    """What to make of these figures: an expectation, by how many records, at what cost."""
    last, name = expected.phases[-1], figure_words(expected.figure)
    half, majority = 100 * last.half_width, 100 * expected.majority
    words = [
        f"expected {name} after the last phase: {100 * last.mean:.1f} ± {half:.1f} %; always "
        f"giving the most frequent answer has {majority:.1f} %. This is an expectation, no "
        f"promise: each of {expected.rehearsals} rehearsals labels among "
        f"{expected.pool_records:,} records of the public validation set and is judged by "
        f"{expected.judged_records:,} others of it. The pool may differ from them. No private "
        "record was used, and nothing was spent."
    ]
    if expected.is_smaller:
        words.append(
            "note: public records are few: a rehearsal bought at most "
            f"{last.rehearsed_labels:,} labels instead of {last.labels:,}, with noise made smaller "
            "in proportion. More labels mostly reach more."
        )
    if last.mean - last.half_width <= expected.majority:
        words.append(
            "note: this is not above the most frequent answer by more than chance; buy more "
            "labels, allow a larger epsilon, or take a smaller model before anything is spent"
        )
    return words
