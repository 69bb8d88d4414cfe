"""Changes of a certificate that nobody may get away with, whatever it certifies.

Each takes a certificate as JSON and changes it in place, or returns the text to be read instead.
What a kind has not (a campaign has no `spent`, votes have no `cohorts`) is changed where its like
stands.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from dpal.canonical import canonical_json, digest
from dpal.certificate.read_and_seal import sealed_certificate, to_text

Document = dict[str, Any]
Edit = Callable[[Document], Any]

INVENTED = {
    "sequence": 1,
    "campaign": "",
    "kind": "adopt",
    "release": "entry-1",
    "body": {"key": "0" * 64},
    "recorded_at": "2026-01-01T00:00:00.000+00:00",
    "previous": "0" * 64,
    "digest": "0" * 64,
}


def put(*path: Any, to: Any) -> Edit:
    """Replaces a value; `to` may be computed from the one that is there."""

    def edit(document: Document) -> None:
        *way, last = path
        place = at(document, way)
        place[last] = to(place[last]) if callable(to) else to

    return edit


def drop(*path: Any) -> Edit:
    """Removes a key."""

    def edit(document: Document) -> None:
        *way, last = path
        del at(document, way)[last]

    return edit


def rename(*path: Any, to: str) -> Edit:
    """Calls a key otherwise."""

    def edit(document: Document) -> None:
        *way, last = path
        place = at(document, way)
        place[to] = place.pop(last)

    return edit


def at(value: Any, path: Any) -> Any:
    """What stands at a path."""
    for key in path:
        value = value[key]
    return value


def more_figures(document: Document) -> tuple[dict[str, Any], str]:
    """Figures beside the total's: of a cohort, of what is spent, of the start; and one's name."""
    if "cohorts" in document:
        return document["cohorts"][0], "epsilon_pld"
    if "spent" in document:
        return document["spent"], "rdp"
    return document["start"]["epsilon"], "pld"


def events(document: Document) -> list[dict[str, Any]]:
    """The list of what was charged; empty where nothing was."""
    if "cohorts" in document:
        return document["cohorts"][0]["events"]
    return document["released"]


def sentences(document: Document) -> dict[str, Any]:
    """Where the sentences are."""
    return document["assumptions"] if "assumptions" in document else document["statements"]


def in_figures(change: Callable[[dict[str, Any], str], Any]) -> Edit:
    def edit(document: Document) -> None:
        change(*more_figures(document))

    return edit


def in_sentences(change: Callable[[dict[str, Any]], Any]) -> Edit:
    return lambda document: change(sentences(document)) and None


def in_events(change: Callable[[list[dict[str, Any]]], Any]) -> Edit:
    """Changes what was charged; where nothing was, something is invented."""

    def edit(document: Document) -> None:
        listed = events(document)
        if listed:
            change(listed)
        else:
            listed.append({"release": "phase-0/training", "mechanism": "laplace", "epsilon": 0.1})

    return edit


def in_entries(change: Callable[[list[dict[str, Any]]], Any]) -> Edit:
    """Changes ledger entries; where none is, one is invented."""

    def edit(document: Document) -> None:
        listed = document["ledger"]["entries"]
        if listed:
            change(listed)
        else:
            listed.append({**INVENTED, "campaign": document["campaign"], "kind": "hold"})

    return edit


def redigested(change: Callable[[dict[str, Any]], Any]) -> Callable[[list[dict[str, Any]]], None]:
    """Changes the first entry's body, and gives the entry the digest that it then has."""

    def edit(listed: list[dict[str, Any]]) -> None:
        change(listed[0]["body"])
        rest = {key: value for key, value in listed[0].items() if key != "digest"}
        listed[0]["digest"] = digest(rest)

    return edit


def lower_noise(listed: list[dict[str, Any]]) -> None:
    """Multiplies every number of the first event by ten."""
    for key, value in listed[0].items():
        if isinstance(value, float):
            listed[0][key] = 10 * value


def one_model(document: Document) -> dict[str, Any]:
    """The certified model; invented where votes alone are certified."""
    if "model" not in document:
        document["model"] = {"release": "student", "file": "m.safetensors", "sha256": "0" * 64}
    return document["model"]


def other_kind(document: Document) -> None:
    """Calls it what it is not."""
    document["kind"] = "improvement" if document.get("kind") != "improvement" else "voting"


def replan(document: Document) -> None:
    """A plan for a smaller promise, under a digest that fits it."""
    plan = document["plan"]
    plan["content"]["spec"]["target"]["epsilon"] = 0.5
    plan["digest"] = digest(plan["content"])


def first_list_turned(document: Document) -> None:
    """Turns the first list around that reads otherwise backwards."""
    for listed in lists(document):
        if canonical_json(listed) != canonical_json(listed[::-1]):
            listed.reverse()
            return
    next(lists(document)).append("more")  # all of one thing: a longer list is another one, too


def lists(value: Any) -> Iterator[list[Any]]:
    """All lists of a document."""
    if isinstance(value, list):
        yield value
    if isinstance(value, list | dict):
        for child in value.values() if isinstance(value, dict) else value:
            yield from lists(child)


def before(document: Document) -> None:
    """Forgets, or cheapens, what was spent before."""
    start = document.get("start")
    if start is None:
        document["before"] = "somebody"
    elif start["certificate"] is not None:
        start["certificate"]["epsilon"]["pld"] = 0.1
    else:
        start["declared"]["epsilon"] = 0.1


def both_starts(document: Document) -> None:
    """A start that is certified and declared, or that has none."""
    start = document.setdefault("start", {"certificate": None, "model": "0" * 64, "epsilon": {}})
    start["declared"] = None if start.get("declared") else {"epsilon": 0.1, "delta": 0.0}


def read_as(old: str, new: str) -> Edit:
    """Changes the text of the first place where `old` stands."""

    def edit(document: Document) -> str:
        text = to_text(document)
        assert old in text
        return text.replace(old, new, 1)

    return edit


def pld(new: str) -> Edit:
    """Puts a literal in the place of the epsilon by PLD."""

    def edit(document: Document) -> str:
        figure = f'"pld": {json.dumps(document["epsilon"]["pld"])}'
        return read_as(figure, f'"pld": {new}')(document)

    return edit


EDITS: dict[str, Edit] = {
    # Figures: one more, one less, of another type, of another size.
    "a figure is added": lambda found: found["epsilon"].update(auditor_verified=0.1),
    "a figure is removed": drop("epsilon", "pld"),
    "a figure is renamed": rename("epsilon", "rdp", to="renyi"),
    "a figure is a string": put("epsilon", "pld", to=str),
    "a figure is a boolean": put("epsilon", "pld", to=True),
    "a figure is a whole number": put("epsilon", "pld", to=int),
    "a figure is nothing": put("epsilon", "pld", to=None),
    "a figure is a list": put("epsilon", "pld", to=lambda value: [value]),
    "a figure has figures": put("epsilon", "pld", to=lambda value: {"value": value}),
    "a figure is negative": put("epsilon", "pld", to=lambda value: -value - 1.0),
    "a figure is lower": put("epsilon", "pld", to=lambda value: value - 0.01),
    "a figure is higher": put("epsilon", "rdp", to=lambda value: value + 0.5),
    "the second opinion is higher": put("epsilon", "dp_accounting", to=lambda value: value + 2.0),
    "the figures are one number": put("epsilon", to=0.1),
    "the figures are gone": drop("epsilon"),
    "a further figure is added": in_figures(lambda found, _: found.update(audited=0.1)),
    "a further figure is removed": in_figures(lambda found, name: found.pop(name)),
    "a further figure is a string": in_figures(
        lambda found, name: found.update({name: str(found[name])})
    ),
    "a further figure is a whole number": in_figures(lambda found, name: found.update({name: 1})),
    "a further figure is lower": in_figures(
        lambda found, name: found.update({name: found[name] - 0.01})
    ),
    # The promise.
    "the promised epsilon is lower": put("promise", "epsilon", to=0.5),
    "the promised epsilon is a string": put("promise", "epsilon", to=str),
    "the promised epsilon is a whole number": put("promise", "epsilon", to=int),
    "the promised epsilon is a boolean": put("promise", "epsilon", to=True),
    "delta is smaller": put("promise", "delta", to=lambda value: value / 10),
    "delta is zero": put("promise", "delta", to=0.0),
    "delta is a string": put("promise", "delta", to=str),
    "the adjacency is another": put("promise", "adjacency", to="replace_one"),
    "the unit is another": put("promise", "unit", to="group"),
    "the accountant is another": put(
        "promise", "accountant", to=lambda one: "rdp" if one == "pld" else "pld"
    ),
    "the accountant is missing": drop("promise", "accountant"),
    "the promise says more": lambda found: found["promise"].update(verified=True),
    # The frame.
    "a key is added": lambda found: found.update(audited=True),
    "a key is renamed": rename("promise", to="promised"),
    "the plan is missing": drop("plan"),
    "the ledger is missing": drop("ledger"),
    "the format is a string": put("format", to=str),
    "the format is a decimal": put("format", to=float),
    "the format is unknown": put("format", to=99),
    "the format is a boolean": put("format", to=True),
    "it is another kind": other_kind,
    "it has another name": put("campaign", to="another"),
    "its name is a number": put("campaign", to=5),
    "the versions are a list": put("versions", to=["dpal"]),
    "the versions are numbers": put("versions", to={"dpal": 1}),
    # The sentences.
    "a sentence is altered": in_sentences(
        lambda found: found.update({next(iter(found)): "everything is protected"})
    ),
    "a sentence is removed": in_sentences(lambda found: found.pop(next(iter(found)))),
    "a sentence is added": in_sentences(lambda found: found.update(R11="audited")),
    "a list is turned around": first_list_turned,
    # What was charged.
    "a charge is cheaper": in_events(lower_noise),
    "a charge is missing": in_events(lambda found: found.pop()),
    "a charge is listed twice": in_events(lambda found: found.append(found[0])),
    "a charge says more": in_events(lambda found: found[0].update(audited=True)),
    # The ledger.
    "the head is moved": put("ledger", "head", "digest", to="f" * 64),
    "the head has another number": put("ledger", "head", "sequence", to=lambda value: value + 1),
    "the head's number is a decimal": put("ledger", "head", "sequence", to=float),
    "the head says more": lambda found: found["ledger"]["head"].update(audited=True),
    "the head is missing": drop("ledger", "head"),
    "the ledger says more": lambda found: found["ledger"].update(audited=True),
    "the ledger is another": put("ledger", "identity", to="f" * 64),
    "the first entry is another": put(
        "ledger", "opening", to=lambda one: None if one else dict(INVENTED, kind="open")
    ),
    "an adoption is invented": lambda found: found["ledger"].update(adoptions=[dict(INVENTED)]),
    "an entry is altered": in_entries(lambda found: found[0]["body"].update(epsilon=0.1)),
    "an entry is altered under its own digest": in_entries(
        redigested(lambda body: body.update(epsilon=0.1))
    ),
    "an entry says more under its own digest": in_entries(
        redigested(lambda body: body.update(audited=True))
    ),
    "an entry has another time": in_entries(lambda found: found[-1].update(recorded_at="2000")),
    "an entry has one more key": in_entries(lambda found: found[0].update(audited=True)),
    "an entry is missing": in_entries(lambda found: found.pop()),
    "an entry stands twice": in_entries(lambda found: found.append(found[-1])),
    "the entries are turned around": in_entries(lambda found: found.reverse()),
    # The plan.
    "the plan has another digest": put("plan", "digest", to="f" * 64),
    "the plan is another": put("plan", "content", to={}),
    "the plan promises less, under its digest": replan,
    "the plan says more": lambda found: found["plan"].update(audited=True),
    "the plan's content says more": lambda found: found["plan"]["content"].update(audited=True),
    # The model.
    "the model is another": lambda found: one_model(found).update(sha256="f" * 64),
    "the model's digest is a number": lambda found: one_model(found).update(sha256=5),
    "the model says more": lambda found: one_model(found).update(audited=True),
    "a model is added": lambda found: found.setdefault("models", []).append(
        {"release": "student", "file": "m.safetensors", "sha256": "f" * 64}
    ),
    # What was spent before.
    "what was spent before is another": before,
    "the start is certified and declared, or neither": both_starts,
    # What two programs would read as two certificates, or not at all.
    "a figure is not a number": pld("NaN"),
    "a figure is infinite": pld("Infinity"),
    "a figure is minus infinity": pld("-Infinity"),
    "a figure is too large": pld("1e999"),
    "a key stands twice": read_as('"promise":', '"promise": {}, "promise":'),
    "a figure stands twice": read_as('"pld":', '"pld": 0.1, "pld":'),
    "half a character": read_as('"versions": {', '"versions": {"\\ud800": "1", '),
    "something follows": lambda found: to_text(found) + "{}",
    "it is cut short": lambda found: to_text(found)[:-40],
}
# The certificate's own digest is what these change.
SEAL: dict[str, Edit] = {
    "the digest is missing": drop("digest"),
    "the digest is another": put("digest", to="f" * 64),
    "the digest is in capitals": put("digest", to=str.upper),
}


def edited(document: Document, edit: Edit, *, seal: bool) -> str:
    """The text of a changed certificate, with the digest that it had or the one that fits."""
    copied = copy.deepcopy(document)
    text = edit(copied)
    if isinstance(text, str):
        return text
    assert canonical_json(copied) != canonical_json(document), "this changed nothing"
    return to_text(sealed_certificate(copied) if seal else copied)
