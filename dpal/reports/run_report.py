"""The report of a run of any kind: what all of them tell, in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.reports.commands import ELSEWHERE, ELSEWHERE_WITHOUT_MODEL, TRUSTED
from dpal.reports.plain_language import promised
from dpal.reports.report import (
    Aside,
    Block,
    Commands,
    Facts,
    Report,
    Section,
    Table,
    Verdict,
    sentences,
    spent_bar,
)
from dpal.reports.summary import kept_so_far, promise, terms

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What every kind of run has.

    Attributes:
      run: what a person calls it, such as "campaign".
      summary: of its certified plan.
      spent: epsilon that any record may have lost.
      finished: whether it is done with all of its plan.
      head: sequence and digest of the last ledger entry that it shows.
      certificate: digest of its certificate; None before there is one.
      files: what lies in its folder, and what that is.
      has_model: whether a model is verified with it.
      restore: commands that bring back the files of its phases.
    """

    run: str
    summary: Mapping[str, Any]
    spent: float
    finished: bool
    head: Mapping[str, Any]
    certificate: str | None
    files: Rows = ()
    has_model: bool = True
    restore: Sequence[str] = ()


def run_report(
    facts: RunFacts,
    *,
    promised_by: Sequence[Block],
    spent: Sequence[Block],
    sections: Sequence[Section],
    uncovered: Sequence[str],
    cards: Sequence[tuple[str, str, str]],
    points: Sequence[tuple[bool, str]] = (),
    defect: str = "",
    checks: Rows = (),
) -> Report:
    """Composes the report of a run.

    Args:
      facts: what every kind has.
      promised_by: who computed that the promise is kept, and how.
      spent: what was spent, in detail.
      sections: what this kind alone has to tell.
      uncovered: what the promise does not speak of.
      cards: further ones beside promise and spending.
      points: further ones of the verdict.
      defect: title of the verdict where something else than the ledger says not to rely on it.
      checks: further commands that check the run, and what they do.
    """
    summary, target = facts.summary, facts.summary["target_epsilon"]
    own = (
        (f"{target:g}", "epsilon promised", f"delta {summary['delta']:.3g}"),
        (f"{facts.spent:.3f}", "epsilon spent", "by any record, at most"),
    )
    last = f"entry {facts.head['sequence']}, {facts.head['digest']}"
    what_it_means = Facts(tuple(promised(summary, facts.run)))
    how_to_read = Aside(f"Epsilon at {terms(summary)}.")
    return Report(
        title=f"{facts.run[0].upper()}{facts.run[1:]} {summary['name']}",
        about=f"Privacy report, as of {_entry(facts)}",
        promise=promise(summary),
        verdict=_verdict(facts, points, defect),
        cards=(*own, *cards),
        sections=(
            Section("What was promised", (what_it_means, *promised_by)),
            Section("What was spent", (how_to_read, *spent)),
            *sections,
            Section("What this does not protect", (sentences(uncovered),)),
            Section("How to check it", (*_checks(facts, checks),)),
        ),
        digests=(
            *([("last ledger entry", last)] if facts.head["sequence"] else []),
            ("plan", summary["plan_digest"]),
            *([("certificate", facts.certificate)] if facts.certificate else []),
        ),
    )


def spent_bars(
    rows: Sequence[tuple[str, float]], target: float, *, title: str, of: str, total: bool = True
) -> Table:
    """Epsilons under the promise.

    Args:
      rows: who or what, and its epsilon; the last is the whole where that is a total.
      target: what is promised.
      title: of the table.
      of: what the rows are.
      total: whether the last row stands out.
    """
    return Table(
        title,
        (of, "epsilon"),
        tuple((name, f"{epsilon:.4f}") for name, epsilon in rows),
        bars=tuple(spent_bar(epsilon, target) for _, epsilon in rows),
        bars_title=f"of the promise (red: {target:g})",
        total=total,
    )


def _entry(facts: RunFacts) -> str:
    number = facts.head["sequence"]
    return f"ledger entry {number}" if number else "its certificate; no ledger was written"


def _verdict(facts: RunFacts, points: Sequence[tuple[bool, str]], defect: str) -> Verdict:
    kept, said = kept_so_far(facts.spent, facts.summary)
    titles = {
        (True, True): "The promise is kept.",
        (True, False): f"The promise is kept so far; the {facts.run} is not finished.",
    }
    title = titles.get((kept, facts.finished), "More was spent than promised.")
    certified = f"It is certified: whoever has the certificate can check it. {TRUSTED}"
    missing = f"There is no certificate yet; a finished {facts.run} has one."
    has_one = facts.certificate is not None
    return Verdict(
        title=defect if kept and defect else title,
        tone="broken" if not kept or defect else "kept" if has_one else "mind",
        points=((kept, said), (has_one, certified if has_one else missing), *points),
    )


def _checks(facts: RunFacts, checks: Rows) -> list[Block]:
    name = facts.summary["name"]
    whole = (f"dpal ledger verify {name}", "The ledger is whole, and the files are its own.")
    elsewhere = (
        ELSEWHERE if facts.has_model else ELSEWHERE_WITHOUT_MODEL,
        f"Every epsilon is computed again, by another accountant, on any machine"
        f"{', the model is opened' if facts.has_model else ''}, and the signature is compared with "
        "the data owner's public key, which they print with dpal ledger key.",
    )
    blocks: list[Block] = [
        f"This page is a copy for reading and proves nothing by itself. These commands do, beside "
        f"the files of the {facts.run}:",
        Commands((whole, *([elsewhere] if facts.certificate else []), *checks)),
    ]
    if facts.restore:
        back = tuple((command, "") for command in facts.restore)
        says = (
            "The pool's state, the selection and the labels come with them where their cache is, "
            "and nowhere else."
        )
        blocks += ["Bring back the files of a phase:", Commands(back), Aside(says)]
    if facts.files:
        blocks += ["Files beside this one:", Facts(facts.files)]
    return blocks
