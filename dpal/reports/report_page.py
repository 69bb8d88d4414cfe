"""The report of a campaign as one page: it opens without a server and loads nothing.

For people who decide, and do not run anything. All texts are escaped, and the page itself
forbids scripts and addresses of any kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpal.certificate.statements import STATEMENTS
from dpal.reports.commands import ELSEWHERE, TRUSTED
from dpal.reports.plain_language import promised, selection_quality, who_sees
from dpal.reports.render.html import rendered
from dpal.reports.render.svg_charts import SERIES, Line, axis, line_chart
from dpal.reports.summary import others, plan_table, promise
from dpal.reports.validation import figures_in, headline, percent

_PROMISE_AT = 92.0  # where on a bar the promise is, of 100: there is room to pass it


def report_page(
    summary: Mapping[str, Any],
    phases: Sequence[Mapping[str, Any]],
    head: Mapping[str, Any],
    *,
    certificate: str | None = None,
    audit: Mapping[str, Any] | None = None,
    restore: Sequence[str] = (),
) -> str:
    """Writes the page.

    Args:
      summary: the certified plan's summary.
      phases: metrics of the finished phases, at least one.
      head: sequence and digest of the campaign's last ledger entry.
      certificate: digest of the campaign's certificate, once it has one.
      audit: `audit.json` of an audit of this plan, if there was one.
      restore: commands that bring back the files of the phases.

    Returns:
      HTML.
    """
    name, value = headline(phases[-1])
    target, spent = summary["target_epsilon"], phases[-1]["campaign_epsilon"]
    finished = len(phases) == len(summary["phases"])
    plan = plan_table(summary)
    return rendered(
        "report.html",
        {
            "name": summary["name"],
            "head": head,
            "promise": promise(summary),
            "verdict": _verdict(summary, spent, finished, certificate, audit),
            "cards": [
                (f"{target:g}", "epsilon promised", f"delta {summary['delta']:.3g}"),
                (f"{spent:.3f}", "epsilon spent", "by any record, at most"),
                (f"{phases[-1]['labels']:,}", "labels bought", "up to, of "
                 f"{summary['pool_size']:,} records"),
                (percent(value), name, "on the validation set"),
            ],
            "promised": promised(summary),
            "terms": f"delta {summary['delta']:.3g}, adjacency {summary['adjacency']}, unit "
            f"{summary['unit']}",
            "budget": _budget_chart(summary, phases),
            "legend": _legend(phases),
            "cohorts": _cohorts(summary, phases[-1]),
            "accountant": summary["accountant"].upper(),
            "promise_at": _PROMISE_AT,
            "target": f"{target:g}",
            "by_labels": _learning_chart(phases, "labels"),
            "by_epsilon": _learning_chart(phases, "campaign_epsilon"),
            "figure": name,
            "phases": _phases(phases),
            "plan": {"columns": plan.columns, "rows": plan.rows},
            "who_sees": who_sees(summary),
            "quality": selection_quality(summary),
            "audit": None if audit is None else _audit(audit),
            "uncovered": [*_uncovered(), others(summary)],
            "certificate": certificate,
            "commands": _commands(summary["name"], certificate),
            "restore": list(restore),
            "digests": [
                ("last ledger entry", f"entry {head['sequence']}, {head['digest']}"),
                ("plan", summary["plan_digest"]),
                *([("certificate", certificate)] if certificate else []),
            ],
        },
    )  # fmt: skip


def _verdict(
    summary: Mapping[str, Any],
    spent: float,
    finished: bool,
    certificate: str | None,
    audit: Mapping[str, Any] | None,
) -> dict[str, Any]:
    kept = spent <= summary["target_epsilon"]  # NaN is no promise kept
    failed = audit is not None and not audit["passed"]
    points = [
        (
            kept,
            f"Any record has lost at most epsilon {spent:.4f} of {summary['target_epsilon']:g} "
            f"promised, at delta {summary['delta']:.3g}, adjacency {summary['adjacency']}, unit "
            f"{summary['unit']}, whatever path it took.",
        ),
        (
            certificate is not None,
            f"It is certified: whoever has the certificate can check it. {TRUSTED}"
            if certificate
            else "There is no certificate yet; a finished campaign has one.",
        ),
    ]
    if audit is not None:
        count = len(audit["findings"])
        wrong = sum(not one["passed"] for one in audit["findings"])
        points.append(
            (
                not failed,
                f"It was audited: {wrong} of {count} checks failed."
                if failed
                else f"It was attacked with its own code: all {count} checks passed.",
            )
        )
    titles = {
        (True, True): "The promise is kept.",
        (True, False): "The promise is kept so far; the campaign is not finished.",
    }
    title = titles.get((kept, finished), "More was spent than promised.")
    if kept and failed:
        title = "By the ledger the promise is kept; an audit found a defect. Do not rely on it."
    tone = "broken" if not kept or failed else "kept" if certificate else "mind"
    return {"title": title, "tone": tone, "points": points}


def _budget_chart(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> str:
    """Epsilon of every cohort by phase, under the promised line."""
    key, target = f"epsilon_{summary['accountant']}", summary["target_epsilon"]
    lines = []
    for number, cohort in enumerate(one["cohort"] for one in phases[-1]["cohorts"]):
        points = tuple(
            (float(phase["phase"]), float(one[key]))
            for phase in phases
            for one in phase["cohorts"]
            if one["cohort"] == cohort
        )
        lines.append(Line(name=_cohort(cohort), points=points, style=_style(cohort, number)))
    told = "; ".join(
        f"{one.name}: " + ", ".join(f"{value:.2f}" for _, value in one.points) for one in lines
    )
    last = max(1, len(phases) - 1)
    return line_chart(
        lines,
        x=axis("phase", 0, last, whole=True),
        y=axis(f"epsilon ({summary['accountant'].upper()})", 0, target * 1.15),
        limit=target,
        limit_name=f"promised: {target:g}",
        alt=f"Epsilon by phase, from phase 0. {told}. Promised: {target:g}.",
    )


def _learning_chart(phases: Sequence[Mapping[str, Any]], key: str) -> str:
    """The headline figure over labels, or over epsilon."""
    name, _ = headline(phases[0])
    points = [(float(phase[key]), headline(phase)[1]) for phase in phases]
    values, places = [value for _, value in points], [at for at, _ in points]
    low = max(0.0, min(values) - 0.1)
    title = "labels, up to" if key == "labels" else "epsilon, any record"
    told = ", ".join(f"{percent(value)} at {at:,.4g}" for at, value in points)
    room = 0.04 * max(max(places) - min(places), 1e-9)
    line = Line(
        name=name,
        points=tuple(points),
        style="s0",
        labels=tuple(f"{100 * value:.1f}" for value in values),
    )
    return line_chart(
        [line],
        x=axis(title, min(places) - room, max(places) + room),
        y=axis(f"validation {name}", low, min(1.0, max(values) + 0.08), percent=True),
        alt=f"Validation {name} by {title.partition(',')[0]}: {told}.",
    )


def _legend(phases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    names = [one["cohort"] for one in phases[-1]["cohorts"]]
    return [(_cohort(name), _style(name, number)) for number, name in enumerate(names)]


def _cohorts(summary: Mapping[str, Any], phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    key, target = f"epsilon_{summary['accountant']}", summary["target_epsilon"]
    rows = [
        {
            "name": _cohort(one["cohort"]),
            "width": _width(one[key], target),
            "broken": not one[key] <= target,
            "spent": f"{one[key]:.4f}",
            "selection": f"{one['selection_epsilon']:.4f}",
            "total": False,
        }
        for one in phase["cohorts"]
    ]
    whole = phase["campaign_epsilon"]
    rows.append(
        {
            "name": "any record, any path",
            "width": _width(whole, target),
            "broken": not whole <= target,
            "spent": f"{whole:.4f}",
            "selection": "",
            "total": True,
        }
    )
    return rows


def _phases(phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = ["phase", "labels, up to", *figures_in(phases[0]), "epsilon so far"]
    rows = [
        [
            str(phase["phase"]),
            f"{phase['labels']:,}",
            *(percent(value) for value in figures_in(phase).values()),
            f"{phase['campaign_epsilon']:.4f}",
        ]
        for phase in phases
    ]
    return {"columns": columns, "rows": rows}


def _audit(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Claimed and proven epsilons, and the defects."""
    bounds = [one for one in audit["findings"] if one["is_epsilon"] and one["value"] is not None]
    highest = max([1.0, *(max(one["value"], one["claimed"] or 0.0) for one in bounds)]) * 1.1
    return {
        "passed": audit["passed"],
        "checks": len(audit["findings"]),
        "bounds": [
            {
                "what": one["what"],
                "claimed": "not private" if one["claimed"] is None else f"{one['claimed']:.2f}",
                "measured": f"{one['value']:.2f}",
                "width": f"{100 * min(1.0, max(0.0, one['value']) / highest):.3f}",
                "at": None
                if one["claimed"] is None
                else f"{100 * min(1.0, one['claimed'] / highest):.3f}",
                "broken": not one["passed"],
                "control": one["claimed"] is None,
            }
            for one in bounds
        ],
        "defects": [
            f"{one['what']}: expected {one['expected']}, measured {one['measured']}. Likely: "
            f"{one['likely']}."
            for one in audit["findings"]
            if not one["passed"]
        ],
    }


def _uncovered() -> list[str]:
    told = [*STATEMENTS["exceptions"], STATEMENTS["tuning"]]
    return [f"{one[0].upper()}{one[1:]}." for one in told]


def _commands(campaign: str, certificate: str | None) -> list[tuple[str, str]]:
    found = [(f"dpal ledger verify {campaign}", "The ledger is whole, and the files are its own.")]
    if certificate:
        found.append(
            (
                ELSEWHERE,
                "Every epsilon is computed again, by another accountant, on any machine, the model "
                "is opened, and the signature is compared with the data owner's public key, which "
                "they print with dpal ledger key.",
            )
        )
    found.append(
        (f"dpal audit {campaign}", "The campaign's own code is attacked; this costs nothing.")
    )
    return found


def _cohort(name: str) -> str:
    return f"cohort {name}" if name.isdecimal() else name.replace("_", " ")


def _style(cohort: str, number: int) -> str:
    return f"s{number % SERIES}" if cohort.isdecimal() else "rest"


def _width(epsilon: float, target: float) -> str:
    return f"{max(0.0, min(100.0, _PROMISE_AT * epsilon / target)):.3f}"
