"""The page that a manager reads: nothing runs on it, and it says what was promised and spent."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest

from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Unit
from dpal.reports.campaign_report import campaign_report
from dpal.reports.campaigns_side_by_side import Compared, comparability_note, comparison_table
from dpal.reports.plain_language import best_guess, expected_hits
from dpal.reports.render.html import html_of
from dpal.reports.run_report import RunFacts
from tests.conftest import small_spec
from tests.reports.pages import Page, sound

HEAD = {"sequence": 7, "digest": "d1ce" * 16}
HOSTILE = '"><script>alert(1)</script>'


def summary_of(mode: str = "visible", **changes) -> dict:
    spec = small_spec(
        strategy="naive", privacy={"selection": mode}, schedule__queries=[200, 200], **changes
    )
    return certified_plan(spec).summary()


@pytest.fixture(scope="module")
def summary() -> dict:
    return summary_of()


def phases_of(summary: dict) -> list[dict]:
    """Metrics as phases leave them, the planned epsilon reached at the end."""
    count, found = len(summary["phases"]), []
    for at in range(count):
        share = (at + 1) / count
        cohorts = [
            {
                "cohort": str(one["cohort"]),
                "selection_epsilon": one["selection_epsilon"] * share,
                "epsilon_rdp": one["epsilon_rdp"] * share,
                "epsilon_pld": one["epsilon_pld"] * share,
            }
            for one in summary["cohorts"]
        ]
        labels = sum(one["cohort_size"] for one in summary["phases"][: at + 1])
        found.append(
            {
                "phase": at,
                "labels": labels,
                "validation_accuracy": 0.5 + 0.1 * at,
                "campaign_epsilon": summary["worst_epsilon"] * share,
                "cohorts": cohorts,
            }
        )
    return found


def page(summary, phases=None, *, certificate=None, restore=(), **more) -> Page:
    phases = phases or phases_of(summary)
    facts = RunFacts(
        run="campaign",
        summary=summary,
        spent=phases[-1]["campaign_epsilon"],
        finished=len(phases) == len(summary["phases"]),
        head=HEAD,
        certificate=certificate,
        restore=restore,
    )
    html = html_of(campaign_report(facts, phases, **more))
    for word in ("http:", "https:", "url(", "@import", "<script"):
        assert word not in html
    return sound(html)


def audit(*, passed: bool, plan: str) -> dict:
    finding = {
        "what": "guessing <b>who</b> was in", "expected": "at most 8", "measured": "1.2",
        "passed": passed, "likely": "noise too small", "claimed": 8.0, "value": 1.2,
        "is_epsilon": True,
    }  # fmt: skip
    return {"passed": passed, "plan_digest": plan, "findings": [finding]}


def test_nothing_on_the_page_loads_runs_or_leads_elsewhere(summary):
    told = page(summary, certificate="c0ffee", audit=audit(passed=True, plan="p"))
    assert not list(told.named("img"))


@pytest.mark.parametrize("asks_people", [False, True])
def test_where_people_label_it_says_who_sees_how(summary, asks_people):
    told = page(summary, asks_people=asks_people)
    assert (f"dpal label {summary['name']} --agreement" in told.text) == asks_people


def test_hostile_names_are_text(summary):
    hostile = copy.deepcopy(summary) | {"name": HOSTILE}
    told = page(hostile, restore=[f"dpal restore '{HOSTILE}'"], certificate=HOSTILE)
    assert "script" not in {tag for tag, _ in told.tags}
    assert HOSTILE in told.text


def test_it_says_promise_spending_and_what_it_bought(summary):
    told, phases = page(summary, certificate="c0ffee"), phases_of(summary)
    assert told.verdict() == "kept"
    assert (
        f"epsilon {summary['worst_epsilon']:.4f} at delta {summary['delta']:.3g}, "
        "adjacency zero_out, unit record, of 8" in told.text
    )
    for one in phases[-1]["cohorts"]:
        assert f"{one['epsilon_pld']:.4f}" in told.text
    charts = [str(one["aria-label"]) for tag, one in told.tags if tag == "svg" and "role" in one]
    assert len(charts) == 3
    assert "50.00 % at 100, 60.00 % at 300, 70.00 % at 500" in charts[1]
    assert all("NaN" not in one and "nan" not in one for one in charts)


def test_one_phase_draws_no_curve(summary):
    told = page(summary, phases_of(summary)[:1])
    assert not [one for tag, one in told.tags if tag == "svg" and "role" in one]
    assert "50.00 %" in told.text, "its figure stands in the table"


@pytest.mark.parametrize(("unit", "other"), [("record", "group"), ("group", "record")])
def test_it_speaks_of_what_is_protected_and_counted(unit, other):
    spec = small_spec(strategy="naive", schedule__queries=[200, 200])
    spec = replace(spec, target=replace(spec.target, unit=Unit(unit)))
    told_of = certified_plan(spec).summary()
    told = " ".join(page(told_of).text.split())
    assert f"of {told_of['pool_size']:,} {unit}s" in told
    for words in ("any {},", "by any {}", "any {} has", "cohort {}s"):
        assert words.format(unit) in told.lower()
        assert words.format(other) not in told.lower()


def test_an_unfinished_a_broken_and_a_defective_campaign_do_not_look_kept(summary):
    phases = phases_of(summary)
    assert "kept so far; the campaign is not finished" in page(summary, phases[:1]).text
    over = copy.deepcopy(phases)
    over[-1]["campaign_epsilon"] = 8.5
    assert "More was spent than promised." in page(summary, over).text
    over[-1]["campaign_epsilon"] = math.nan
    assert "The promise is kept" not in page(summary, over).text
    defect = page(summary, certificate="c", audit=audit(passed=False, plan="p"))
    assert "an audit found a defect. Do not rely on it." in defect.text
    assert "Likely: noise too small." in defect.text
    assert "guessing <b>who</b> was in" in defect.text


def test_it_says_whom_a_reader_trusts_and_whom_not(summary):
    """Certified is not trusted by itself: somebody ran it, and signed."""
    told = page(summary, certificate="c0ffee").text
    assert "trusting nobody" not in told
    assert "the holder" in told
    assert "--ledger LEDGER --model MODEL --key KEY" in told


def test_a_hidden_selection_is_not_described():
    told = page(summary_of("hidden"), certificate="c")
    assert "How good" in told.text
    assert "highest-scored:" not in told.text


def test_a_visible_selection_says_what_the_plan_expects(summary):
    expected = expected_hits(summary)
    assert [phase for phase, _, _ in expected] == [1, 2]
    # Found more often than by chance, and never surely: answers are random.
    assert all(chance < found < 1 for _, found, chance in expected)
    assert "plan expects" in page(summary).text


def test_the_best_guess_is_the_bound_of_randomized_response():
    """Telling one bit truthfully with chance e/(1+e) is epsilon 1, and is guessed that often."""
    assert best_guess(1.0, 0.0) == pytest.approx(math.e / (1 + math.e))
    assert best_guess(0.0, 0.0) == 0.5
    assert best_guess(0.0, 1.0) == 1.0
    assert best_guess(800.0, 1e-5) == 1.0


def test_campaigns_side_by_side(summary):
    other = copy.deepcopy(summary) | {"name": "other", "delta": 1e-6}
    campaigns = [Compared(summary=one, phases=phases_of(one)) for one in (summary, other)]
    rows = comparison_table(campaigns).rows
    assert [row[0] for row in rows] == ["small", "other"]
    assert rows[0][2:6] == ("500", "70.00 % accuracy", f"{summary['worst_epsilon']:.4f}", "8")
    assert rows[1][6:] == ("1e-06",)  # what differs is a column, and the rest a sentence
    assert "the stronger" in comparability_note(campaigns)
    for key in ("adjacency zero_out", "unit record", "strategy naive"):
        assert key in comparability_note(campaigns)


def test_deltas_that_round_alike_are_not_the_same(summary):
    other = copy.deepcopy(summary) | {"delta": summary["delta"] * 1.0001}
    campaigns = [Compared(summary=one, phases=phases_of(one)) for one in (summary, other)]
    assert "the stronger" in comparability_note(campaigns)
    first, second = (row[6] for row in comparison_table(campaigns).rows)
    assert first != second


def test_campaigns_that_promise_the_same_fit_a_narrow_terminal(summary):
    campaigns = [Compared(summary=summary, phases=phases_of(summary)) for _ in range(3)]
    shown = comparison_table(campaigns)
    cells = [shown.columns, *shown.rows]
    assert sum(max(map(len, column)) + 3 for column in zip(*cells, strict=True)) <= 80
    note = comparability_note(campaigns)
    assert f"delta {summary['delta']:.3g}" in note
    assert "the stronger" not in note
