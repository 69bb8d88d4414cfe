"""One report, the same content in Markdown and on a page, whatever stands in its texts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpal.reports.charts import Chart, Line, axis
from dpal.reports.plots.draw_chart import chart_figure
from dpal.reports.plots.style import as_png
from dpal.reports.render.html import html_of
from dpal.reports.render.markdown import markdown_of
from dpal.reports.report import (
    PROMISE_AT,
    Aside,
    Bar,
    Commands,
    Facts,
    Legend,
    Picture,
    Points,
    Report,
    ReportSection,
    Table,
    Verdict,
    section,
    spent_bar,
)
from dpal.reports.write_report_files import write_report_files
from tests.reports.pages import Page, sound

HOSTILE = '<script>alert("x")</script> [a](http://b) | `c'
LINE = Line(name="cohort 0", points=((0.0, 1.0), (1.0, 2.5)), style="s0", labels=("1.0", "2.5"))
CHART = Chart(
    name="budget",
    title="Privacy spent",
    lines=(LINE, replace(LINE, name="never selected", style="rest", labels=())),
    x=axis("phase", 0, 1, whole=True),
    y=axis("epsilon", 0, 3),
    alt="Epsilon per phase: 1.0, 2.5.",
    limit=2.8,
    limit_name="promised: 2.8",
)
TABLE = Table(
    "Epsilon, cohort each",
    ("cohort", "state", "epsilon"),
    (("cohort 0", "reserved, 3 steps", "1.2500"), ("any path", "committed", "none")),
    bars=(spent_bar(1.25, 5.0), spent_bar(7.0, 5.0)),
    bars_title="share promised",
    total=True,
    badge="state",
)


def told(text: str = "plain words") -> Report:
    """A report with a text in every place that has one."""
    line = replace(LINE, name=text, labels=(text,))
    picture = Picture(name="central", alt=text, png=as_png(chart_figure(CHART)))
    blocks = (
        text, Aside(text), Points((text,)), Facts(((text, text),)), Commands(((text, text),)),
        Legend(((text, "s0", True),)), TABLE, Table(text, (text, "count"), ((text, "2"),)),
        replace(CHART, alt=text, limit_name=text, lines=(line, line)), picture,
    )  # fmt: skip
    return Report(
        title=text,
        about=text,
        promise=text,
        verdict=Verdict(text, "kept", ((True, text), (False, text))),
        cards=((text, text, text),),
        sections=(
            ReportSection(text, blocks),
            ReportSection("Charts", (CHART, replace(CHART, name="two"))),
        ),
        digests=((text, "d1ce"),),
    )


def test_a_hostile_text_is_text_in_every_block_of_a_page():
    page = sound(html_of(told(HOSTILE)))
    assert len(list(page.named("img"))) == 1
    assert page.text.count(HOSTILE) >= 15


def test_a_hostile_text_is_text_in_markdown():
    text = markdown_of(told(HOSTILE))
    prose = [line for line in text.splitlines() if not line.startswith("    ")]  # no commands
    for line in prose:
        assert "<script" not in line
        assert " [a](" not in line
    rows = [line.replace("\\|", "") for line in prose if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3, 4}  # no cell begins in a text


def test_a_page_loads_pictures_only_where_it_has_some():
    def policy(report: Report) -> str | None:
        page = Page(html_of(report))
        return next(one["content"] for one in page.named("meta") if "http-equiv" in one)

    plain = replace(told(), sections=(ReportSection("Charts", (CHART,)),))
    assert policy(plain) == "default-src 'none'; style-src 'unsafe-inline'"
    assert policy(told()) == f"{policy(plain)}; img-src data:"


def test_markdown_and_page_tell_the_same():
    report = told()
    text, page = markdown_of(report), Page(html_of(report)).finish()
    for row in (TABLE.columns, *TABLE.rows):
        for cell in row:
            assert cell in text
            assert cell in page.text
    assert "![Epsilon per phase: 1.0, 2.5.](figures/budget.png)" in text
    assert CHART.alt in {one["aria-label"] for one in page.named("svg") if "role" in one}
    for part in report.sections:
        assert f"## {part.title}" in text
        assert part.title in page.text
    assert "**Mind:** plain words" in text
    assert {"yes", "no"} <= {one.get("class") for one in page.named("li")}


def test_numbers_stand_right_and_words_left():
    table = Table(
        "t", ("phase", "what", "epsilon", "left"), (("0", "gate, noise 4", "8.1", "none"),)
    )
    assert [table.is_number(at) for at in range(4)] == [False, False, True, True]
    assert table.bars_before == 2
    rule = markdown_of(replace(told(), sections=(ReportSection("t", (table,)),))).splitlines()
    assert "|-------|---------------|--------:|-----:|" in rule


def test_what_stands_between_backticks_is_a_word_of_a_machine():
    report = replace(told(), sections=(ReportSection("t", ("run `dpal <x>` [now]",)),))
    assert "<p>run <code>dpal &lt;x&gt;</code> [now]</p>" in html_of(report)
    assert "run `dpal <x>` \\[now]" in markdown_of(report)


@pytest.mark.parametrize(
    ("epsilon", "style", "width"),
    [(2.5, "spent", PROMISE_AT / 2), (5.0, "spent", PROMISE_AT), (6.0, "broken", 100.0),
     (math.nan, "broken", 100.0)],
)  # fmt: skip
def test_a_bar_that_passes_the_promise_is_broken_and_stays_a_bar(epsilon, style, width):
    bar = spent_bar(epsilon, 5.0)
    [(start, drawn, shown, _)] = bar.pieces()
    assert (start, shown, bar.mark) == (0.0, style, PROMISE_AT)
    assert drawn == pytest.approx(width)


def test_pieces_of_a_bar_follow_each_other_and_end_at_100():
    bar = Bar(tuple((width, "s0", False) for width in (60.0, 30.0, 40.0)))
    drawn = [(start, width) for start, width, _, _ in bar.pieces()]
    assert drawn == [(0, 60), (60, 30), (90, 10)]


def test_badges_bars_and_the_last_row_stand_out():
    page = Page(html_of(told())).finish()
    classes = [one.get("class") for _, one in page.tags]
    assert {"badge reserved,", "badge committed"} & set(classes) == {"badge committed"}
    assert "badge reserved" in classes
    assert classes.count("total") == 2  # the style draws the last one
    assert {"spent", "broken", "mark"} <= set(classes)


def test_a_column_without_a_name_is_no_badge():
    report = replace(told(), sections=(section("t", Table("t", ("", "account"), (("a", "b"),))),))
    page = Page(html_of(report)).finish()
    assert not any("badge" in str(one.get("class")) for _, one in page.tags)


def test_files_are_written_with_their_figures(tmp_path):
    figures = tmp_path / "figures"
    pages = write_report_files(
        told(), text=tmp_path / "report.md", page=tmp_path / "report.html", figures=figures
    )
    assert pages == [tmp_path / "report.html", tmp_path / "report.md"]
    assert {path.name for path in figures.iterdir()} == {"budget.png", "two.png", "central.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures.iterdir())
    before = [path.read_bytes() for path in (*pages, *sorted(figures.iterdir()))]
    write_report_files(told(), text=pages[1], page=pages[0], figures=figures)
    assert before == [path.read_bytes() for path in (*pages, *sorted(figures.iterdir()))]
