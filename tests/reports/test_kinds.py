"""Each kind of run tells what is its own, and all of them what they share, in the same order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpal.certificate.sentences import statements
from dpal.planning.improvement_plan import certify_improvement
from dpal.planning.voting_plan import certify_voting
from dpal.reports.improvement_report import improvement_report
from dpal.reports.pate_baseline_tables import labels_table, methods_table
from dpal.reports.pate_report import pate_report
from dpal.reports.plots.pate_baselines_by_label import labels_figure
from dpal.reports.plots.style import as_png
from dpal.reports.render.html import html_of
from dpal.reports.render.markdown import markdown_of
from dpal.reports.report import Commands, Picture, Report, Table
from dpal.reports.run_report import RunFacts
from dpal.reports.vote_report import ReleasedBlock, account_report
from tests.planning import test_improvement_plan, test_voting_plan
from tests.reports.pages import sound

HEAD = {"sequence": 41, "digest": "d1ce" * 16}
SHARED = ["What was promised", "What was spent"]
LAST = ["What this does not protect", "How to check it"]


def facts(run: str, summary: dict, **changes) -> RunFacts:
    known = RunFacts(
        run=run,
        summary=summary,
        spent=summary["epsilon"],
        finished=True,
        head=HEAD,
        certificate="c0ffee",
        files=(("certificate.json", "what `dpal verify` checks"),),
    )
    return replace(known, **changes)


def judged(epsilon: float | None, shift: float) -> dict:
    labels = {
        name: {"records": 12, "auc": value, "bac": 0.5}
        for name, value in (("calm", 0.6 + shift), ("loud", None))
    }
    averages = {"auc": 0.6 + shift, "bac": 0.5}
    return {"epsilon": epsilon, "figures": {}, "averages": averages, "labels": labels}


@pytest.fixture(scope="module")
def votes() -> dict:
    return certify_voting(test_voting_plan.fitted(test_voting_plan.spec(blocks=(20, 10)))).summary()


@pytest.fixture(scope="module")
def improved() -> dict:
    return certify_improvement(test_improvement_plan.spec()).summary()


def private_voting(summary: dict, **changes) -> Report:
    metrics = {"labels": 20, "validation_micro_f1": 0.51, "released_right": 0.8}
    methods = {"pate": judged(2.0, 0.0), "dp_sgd": judged(1.9, 0.2)}
    return pate_report(facts("private voting", summary, **changes), metrics, methods)


def improvement(summary: dict, *, asks_people: bool = False, **changes) -> Report:
    metrics = {
        "labels": 100, "validation_accuracy": 0.8, "start_accuracy": 0.7,
        "irrelevant_in_pool": 0.25, "irrelevant_chosen": 0.05,
    }  # fmt: skip
    picture = Picture(name="central", alt="Most central records.", png=b"\x89PNG")
    return improvement_report(
        facts("improvement", summary, **changes),
        metrics,
        pictures=[picture],
        asks_people=asks_people,
    )


def account(summary: dict, **changes) -> Report:
    labels = np.array([[1, 0, -1, 1, 0]] * 20, np.int8)
    block = ReleasedBlock(file="votes-1/released.parquet", queries=20, labels=labels, note=None)
    return account_report(
        facts("account of teachers", summary, has_model=False, **changes),
        [block],
        names=("calm", "loud", "short", "long", "dim"),
        has_summary=False,
        other_teachers={"old": "<b>others</b>"},
    )


@pytest.mark.parametrize("asks_people", [False, True])
def test_an_improvement_by_people_says_who_sees_how_they_labeled(improved, asks_people):
    report = improvement(improved, asks_people=asks_people)
    assert ("--agreement" in markdown_of(report)) == asks_people


@pytest.mark.parametrize(
    ("told", "own"),
    [
        (private_voting, ["Teachers and votes", "What it bought"]),
        (account, ["What was released"]),
        (improvement, ["What it bought", "Which public records were labeled"]),
    ],
)
def test_all_kinds_share_promise_spending_second_opinion_and_checks(told, own, votes, improved):
    summary = improved if told is improvement else votes
    report = told(summary)
    assert [part.title for part in report.sections] == [*SHARED, *own, *LAST]
    assert report.verdict.tone == "kept"
    page, text = sound(html_of(report)), markdown_of(report)
    for words in (
        f"epsilon {summary['target_epsilon']:g} at delta 1e-05",
        "adjacency zero_out, unit record",
        f"{summary['epsilon']:.4f}",
        report.verdict.title,
        "dpal ledger verify",
        "verify certificate.json",
        "entry 41",
        summary["plan_digest"],
        "c0ffee",
    ):
        assert words in page.text, words
        assert words in text, words
    second = f"{summary['epsilon_oracle']:.{3 if told is improvement else 4}f}"
    assert second in page.text
    assert ("--model MODEL" in text) is (told is not account)
    [bars] = [table for table in report.blocks(Table) if table.title == "Epsilon of any record"]
    assert all(bar.mark is not None for bar in bars.bars)


def test_why_held_out_records_are_public_is_told_and_stays_text(improved):
    why = "<b>they</b> said\nso"
    report = improvement(improved, why_public=why)
    page, text = html_of(report), markdown_of(report)
    assert "&lt;b&gt;they&lt;/b&gt; said so" in page and "<b>they" not in page
    assert "they" in text and "<b>they" not in text
    assert "declared" not in markdown_of(improvement(improved))


@pytest.mark.parametrize("told", [private_voting, account, improvement])
def test_what_was_overspent_or_is_no_number_is_never_called_kept(told, votes, improved):
    summary = improved if told is improvement else votes
    for spent in (summary["target_epsilon"] + 0.1, math.nan):
        report = told(summary, spent=spent)
        assert report.verdict.title == "More was spent than promised."
        assert report.verdict.tone == "broken"
        assert "The promise is kept" not in html_of(report)


def test_voting_tells_labels_methods_and_why(votes):
    report = private_voting(votes)
    page, text = sound(html_of(report)), markdown_of(report)
    assert "Votes lose to DP-SGD: AUC 0.600 against 0.800." in page.text
    assert "80.00 % of the" in page.text
    assert [str(one["alt"]).partition(" ")[0] for one in page.named("img")] == ["AUC", "BAC"]
    assert "| calm  |      12 |             0.600 |  0.800 |" in text
    assert "| loud  |      12 |                 - |      - |" in text
    assert "(figures/labels-auc.png)" in text
    assert statements("voting")["ballot"][1:] in page.text


def test_an_improvement_tells_start_releases_choice_and_pollution(improved):
    page = sound(html_of(improvement(improved)))
    for words in (
        "Beyond the start two things were released, each charged before it was drawn.",
        "near-private/components", "near-private/support", "25.00 %", "5.00 %", "70.00 % before",
        "most uncertain candidates",
    ):  # fmt: skip
        assert words in page.text, words
    assert "declared by its makers" not in page.text
    alone = {**improved, "releases": [], "declared": True}
    told = sound(html_of(improvement(alone)))
    assert "Beyond the start nothing was released" in told.text
    assert "The start's own cost is declared by its makers and was checked by nobody." in told.text


def test_an_account_tells_answers_and_reasons_as_text(votes):
    report = account(votes)
    page = sound(html_of(report))
    assert "1 of 2 blocks" in page.text
    assert "old: <b>others</b>" in page.text.lower()
    assert "&lt;b>others" in markdown_of(report)
    answered = next(one for one in report.blocks(Table) if one.title == "Released labels")
    assert answered.rows[0] == ("calm", "100.00 %", "100.00 %")
    assert answered.rows[2] == ("short", "0.00 %", "-")


def test_a_run_without_ledger_or_certificate_says_so(improved):
    report = improvement(improved, head={"sequence": 0, "digest": ""}, certificate=None)
    assert report.about == "Privacy report, as of its certificate; no ledger was written"
    assert [what for what, _ in report.digests] == ["plan"]
    assert report.verdict.tone == "mind"
    [shown] = report.blocks(Commands)
    assert [command for command, _ in shown.rows] == ["dpal ledger verify better"]


def test_methods_of_repetitions_are_means_with_their_deviation():
    runs = [{"pate": judged(2.0, shift)} for shift in (0.0, 0.2)]
    assert methods_table(*runs).rows[0][-1] == "0.700 ± 0.141"  # standard deviation of 0.6, 0.8
    assert methods_table(runs[0]).rows[0][-1] == "0.600"
    table = labels_table(*runs, figure="auc")
    assert table.rows == (("calm", "12", "0.700 ± 0.141"), ("loud", "12", "-"))
    assert as_png(labels_figure(*runs, figure="auc", below="")) != as_png(
        labels_figure(runs[0], figure="auc", below="")
    )
