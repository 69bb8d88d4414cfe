"""A model card as Markdown with front matter, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dpal.reports.validation_figures import percent

_HEADLINES = {"single_label": "accuracy", "multi_label": "micro-F1"}


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
    }
    headline = _HEADLINES[model["task"]]
    if results is not None:
        matter["metrics"] = [{"type": headline, "value": round(results["headline"], 4)}]
    lines = ["---", yaml.safe_dump(matter, sort_keys=False).strip(), "---", "", f"# {card['name']}"]
    lines += ["", *_about(card), "", "## What is promised, and to whom", "", *_promise(privacy)]
    lines += [
        "",
        "## What is not protected",
        "",
        *(f"- {each}" for each in privacy["not_protected"]),
    ]
    lines += ["", "## What it rests on", ""]
    lines += [f"- {number}: {text}" for number, text in privacy["assumptions"].items()]
    lines += ["", "## What it is worth", "", *_worth(results, headline)]
    lines += ["", "## How to check it", "", *_certificate(card)]
    return "\n".join(lines) + "\n"


def _about(card: Mapping[str, Any]) -> list[str]:
    model = card["model"]
    shape = " x ".join(map(str, model["input_shape"]))
    return [
        f"{model['architecture']} on {_records(model)} ({shape}), "
        f"for {len(model['classes'])} classes or labels. It learned from "
        f"{_learned_from(card['data'], card['privacy']['unit'])}."
    ]


def _learned_from(data: Mapping[str, Any], unit: str) -> str:
    """What was labeled; where groups are protected, these are counted."""
    planned, of = f"{data['labels_planned']:,}", f"{data['records']:,}"
    if unit == "record":
        return f"about {planned} labels of {of} private records"
    return f"the labeled records of about {planned} of {of} private {unit}s"


def _records(model: Mapping[str, Any]) -> str:
    if model["features"] != "none":
        return f"{model['features']} features of pictures"
    return {"features": "features", "image": "pictures", "text": "texts"}[model["content"]]


def _promise(privacy: Mapping[str, Any]) -> list[str]:
    return [
        f"Any of the {privacy['protected_records']:,} private {privacy['unit']}s loses at "
        f"most epsilon {privacy['epsilon']:g} at delta {privacy['delta']:.3g} (adjacency "
        f"{privacy['adjacency']}); by {privacy['accountant'].upper()} "
        f"{privacy['epsilon_spent_at_most']:.4f} are spent, second opinion "
        f"{privacy['epsilon_second_opinion']:.4f}.",
        "",
        f"- Trust: {privacy['trust_model']}.",
        f"- Selection: {privacy['selection']['mode']}, seen by {privacy['selection']['seen_by']}.",
        f"- Mechanisms: {', '.join(privacy['mechanisms'])}.",
        f"- Other campaigns: {privacy['other_campaigns']}.",
    ]


def _worth(results: Mapping[str, Any] | None, headline: str) -> list[str]:
    if results is None:
        return ["Nobody declared the validation set public, so that nothing is told of it here."]
    area = "-" if results["auc"] is None else f"{results['auc']:.4f}"
    lines = [
        f"On {results['records']:,} records that are declared public and nobody learned from:",
        "",
        "| figure | value |",
        "|---|---|",
        f"| {headline} | {percent(results['headline'])} |",
        f"| {headline} of always saying what most have | {percent(results['majority'])} |",
        f"| balanced accuracy | {percent(results['balanced_accuracy'])} |",
        f"| area under the ROC curve, mean over classes | {area} |",
        f"| calibration error (at temperature {results['temperature']:.2f}) | "
        f"{percent(results['calibration_error'])} ({percent(results['calibrated_error'])}) |",
    ]
    if results["worthless"] is not None:
        lines += ["", f"**{results['worthless']}**"]
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
