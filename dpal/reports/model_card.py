"""A model card as Markdown with front matter, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dpal.reports.plain_language import CHANGED, declared_public
from dpal.reports.render.markdown import literal
from dpal.reports.validation_figures import percent
from dpal.reports.worth_tables import calibration_words

_RESTS_ON = (
    "The promise holds where these do. Documentation and certificate call them by these numbers."
)


def card_as_markdown(card: Mapping[str, Any]) -> str:
    """Tells a card to people.

    Args:
      card: as `dpal.runs.model_card` makes it.
    """
    model, privacy, results = card["model"], card["privacy"], card["results"]
    matter: dict[str, Any] = {
        "model_name": card["name"],
        "library_name": "dpal",
        "tags": ["differential-privacy", model["content"], model["task"]],
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
        "privacy_unit": privacy["unit"],
        "metrics": [{"type": results["figure"], "value": round(results["headline"], 4)}],
    }
    lines = ["---", yaml.safe_dump(matter, sort_keys=False).strip(), "---", "", f"# {card['name']}"]
    lines += ["", *_about(card), "", "## What is promised, and to whom", "", *_promise(privacy)]
    lines += [
        "",
        "## What is not protected",
        "",
        *(f"- {each}" for each in privacy["not_protected"]),
    ]
    if privacy["assumptions"]:
        lines += ["", "## What it rests on", "", _RESTS_ON, ""]
        lines += [f"- {number}: {text}" for number, text in privacy["assumptions"].items()]
    lines += ["", "## What it is worth", "", *_worth(card)]
    lines += ["", "## How to check it", "", *_certificate(card)]
    return "\n".join(lines) + "\n"


def _about(card: Mapping[str, Any]) -> list[str]:
    model = card["model"]
    shape = " x ".join(map(str, model["input_shape"]))
    return [
        f"{model['architecture']} on {_records(model)} ({shape}), "
        f"for {len(model['classes'])} classes or labels, by {_article(card['kind'])}. It learned "
        f"from {card['data']['learned_from']}."
    ]


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiou" else kind if kind.endswith("voting") else f"a {kind}"


def _records(model: Mapping[str, Any]) -> str:
    if model["features"] != "none":
        return f"{model['features']} features of pictures"
    return {"features": "features", "image": "pictures", "text": "texts"}[model["content"]]


def _promise(privacy: Mapping[str, Any]) -> list[str]:
    count, selection = privacy["protected_records"], privacy["selection"]
    whose = f"private {privacy['unit']}"
    whom = f"Any {whose}" if count is None else f"Any of the {count:,} {whose}s"
    lines = [
        f"{whom} loses at "
        f"most epsilon {privacy['epsilon']:g} at delta {privacy['delta']:.3g} (adjacency "
        f"{privacy['adjacency']}); by {privacy['accountant'].upper()} "
        f"{privacy['epsilon_spent_at_most']:.4f} are spent, second opinion "
        f"{privacy['epsilon_second_opinion']:.4f}.",
        "",
        "- Adjacency says what is compared: the pool as it is, and the pool in which one "
        f"{privacy['unit']} {CHANGED[privacy['adjacency']]}.",
        f"- Trust: {privacy['trust_model']}.",
    ]
    if selection is not None:
        lines.append(f"- Selection: {selection['mode']}, seen by {selection['seen_by']}.")
    lines.append(f"- Mechanisms: {', '.join(privacy['mechanisms']) or 'declared, not known'}.")
    if privacy["other_campaigns"] is not None:
        lines.append(f"- Other campaigns: {privacy['other_campaigns']}.")
    return lines


def _worth(card: Mapping[str, Any]) -> list[str]:
    results, of = card["results"], card["results"]["figure"]
    public = "declared public" if card["data"]["validation_is_public"] else "not protected"
    count = "" if results["records"] is None else f"{results['records']:,} "
    whose = "protected, so that figures are noisy" if results["noisy"] else public
    rows = [(of, percent(results["headline"]))]
    if results["interval"] is not None:
        rows.append((f"{of}, 95 % interval", " to ".join(map(percent, results["interval"]))))
    if results["majority"] is not None:
        rows.append(
            (f"{of} of always giving the most frequent answer", percent(results["majority"]))
        )
        rows.append(("balanced accuracy", percent(results["balanced_accuracy"])))
        area = "-" if results["auc"] is None else f"{results['auc']:.4f}"
        rows.append(("area under the ROC curve, mean over classes (0.5 by chance)", area))
    lines = [
        f"On {count}records that nobody learned from and that are {whose}:",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {figure} | {value} |" for figure, value in rows),
    ]
    if why := card["data"]["why_public"] if card["data"]["validation_is_public"] else "":
        lines += ["", literal(declared_public(why))]
    sure = calibration_words(card["calibration"], protected=results["noisy"])
    lines += [] if sure is None else ["", sure]
    if results["worthless"] is not None:
        lines += ["", f"**{results['worthless']}**"]
    if not results["classes"]:
        return lines
    lines += ["", "| class | records | recall | AUC |", "|---|---|---|---|"]
    for each in results["classes"]:
        recall = "-" if each["recall"] is None else percent(each["recall"])
        area = "-" if each["auc"] is None else f"{each['auc']:.4f}"
        name = each["name"].replace("|", "\\|")
        lines.append(f"| {name} | {each['records']:,} | {recall} | {area} |")
    return lines


def _certificate(card: Mapping[str, Any]) -> list[str]:
    certificate, weights = card["certificate"], card["model"]["weights"]
    signed = "signed" if certificate["signed"] else "not signed"
    return [
        f"`certificate.json` ({signed}, SHA-256 `{certificate['sha256']}`) has every event that "
        f"was paid for; weights have SHA-256 `{weights['sha256']}`. `dpal verify` recomputes every "
        "epsilon and compares every digest.",
    ]
