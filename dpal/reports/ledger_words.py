"""Entries of the ledger in plain words. Nothing in an entry is confidential."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpal.accounting.budget_cohort_names import is_budget_cohort
from dpal.accounting.events import NEVER_SELECTED, VALIDATION
from dpal.ledger.attempt_names import attempt_number, planned_name
from dpal.ledger.campaign_account import State
from dpal.ledger.data_set_accounts import Basis
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.model_choice_and_stopping import EndStatement

STATES = {
    State.RESERVE: "reserved",
    State.COMMIT: "committed",
    State.FORFEIT: "forfeited",
    State.DISCARDED: "thrown away",
}
COUNTED = {Basis.RENYI: "with other campaigns", Basis.SOLE: "alone; takes all"}
_NOBODY = {EntryKind.OPEN: "the ledger", EntryKind.ADOPT: "a person"}


def actor(entry: Entry) -> str:
    """Whose doing an entry is: a campaign, a data owner, somebody who vouched."""
    return entry.campaign or _NOBODY.get(entry.kind, "data owner")


def describe_entry(entry: Entry) -> str:
    """What an entry says, in one sentence without a full stop."""
    body = entry.body
    match entry.kind:
        case EntryKind.OPEN:
            return f"opened the ledger {body['identity'][:12]}"
        case EntryKind.ADOPT:
            lost = f" although entry {body['despite'][:12]} was lost" if body["despite"] else ""
            said = f"vouched for this copy of the ledger{lost} (it was {body['found']})"
            return f"{said}: {quoted(body['reason'])}"
        case EntryKind.REGISTER:
            return f"registered data set {body['dataset']}: {_limit(body)}"
        case EntryKind.LIMIT:
            changed = f"changed the limit of {body['dataset']} to {_limit(body)}"
            return f"{changed}: {quoted(body['reason'])}"
        case EntryKind.BLOCK:
            left = left_of_limit([str(run["campaign"]) for run in body.get("earlier", ())])
            said = f"added block {body['block']} of {body['size']:,} with {left}"
            return said + _similar(body) + _apart(body)
        case EntryKind.INDEX:
            names = f"put {body['records']:,} names or contents of known records on file"
            return names + _similar(body)
        case EntryKind.HOLD:
            planned = _plural(len(body["releases"]), "release")
            cost = f"epsilon {body['epsilon']:g} at delta {body['delta']:.3g}"
            return f"set its plan aside: {planned}, {cost}"
        case EntryKind.RESERVE:
            again = ", charged once more" if attempt_number(entry.release) > 1 else ""
            return f"reserved {entry.release}{again}"
        case EntryKind.CHECKPOINT if body["steps"] == 0:
            files = _plural(len(body.get("discarded", {})), "file")
            name = planned_name(entry.release)
            return f"began {name} again; {files} thrown away, which stay spent"
        case EntryKind.CHECKPOINT:
            steps = _plural(int(body["steps"]), "step")
            return f"{planned_name(entry.release)}: {steps} on disk"
        case EntryKind.COMMIT:
            return f"committed {entry.release}"
        case EntryKind.FORFEIT:
            return f"{entry.release} stays spent: {body['file']} is {body['reason']}"
        case EntryKind.END:
            drawn = _plural(len(body["releases"]), "release")
            returned = "; what it held and did not use flowed back" if body["data"] else ""
            return f"ended after {drawn}{returned}{_released(body)}"


def _released(body: Mapping[str, Any]) -> str:
    """Which model an end names, and why the end came early."""
    stated = EndStatement.of_body(body)
    if stated is None:
        return ""
    curve = ", ".join(f"{100 * value:.2f}" for value in stated.values)
    told = f"; phase {stated.released} is released ({stated.release} of {stated.figure} {curve})"
    if stated.stop is None:
        return told
    phases = _plural(stated.stop.patience, "phase")
    return f"{told}; {phases} brought less than {100 * stated.stop.least_gain:g} points"


def about(entry: Entry) -> str:
    """Whom an entry is about: cohorts, blocks of a data set; empty where it is nobody."""
    body = entry.body
    if entry.kind is EntryKind.RESERVE:
        named = [name for charge in body["charges"] for name in charge["cohorts"]]
        return cohorts_in_words(list(dict.fromkeys(named)))
    if entry.kind is EntryKind.BLOCK:
        return f"{body['dataset']}, block {body['block']}"
    if entry.kind in (EntryKind.REGISTER, EntryKind.LIMIT, EntryKind.INDEX):
        return str(body["dataset"])
    data = body.get("data") if entry.kind in (EntryKind.HOLD, EntryKind.END) else None
    if data:
        blocks = ", ".join(str(block["block"]) for block in data["blocks"])
        return f"{data['name']}, {_plural(len(data['blocks']), 'block', count=False)} {blocks}"
    return ""


def cohorts_in_words(names: list[str]) -> str:
    """Cohorts by name, such as "cohorts 0, 1; never selected".

    >>> cohorts_in_words(["0", "never_selected"])
    'cohort 0; never selected'
    """
    special = (NEVER_SELECTED, VALIDATION, *filter(is_budget_cohort, names))
    numbered = [name for name in names if name not in special]
    said = [f"{_plural(len(numbered), 'cohort', count=False)} {', '.join(numbered)}"]
    rest = [NEVER_SELECTED.replace("_", " ")] if NEVER_SELECTED in names else []
    rest += ["validation set"] if VALIDATION in names else []
    rest += [f"teachers of {name.replace('-', ' ')}" for name in filter(is_budget_cohort, names)]
    return "; ".join([*(said if numbered else []), *rest])


def mechanism_in_words(event: Mapping[str, Any]) -> tuple[str, str]:
    """A mechanism's name, and its parameters."""
    given = {key: value for key, value in event.items() if value is not None}
    parameters = {key: value for key, value in given.items() if key != "mechanism"}
    told = (f"{key.replace('_', ' ')} {value:.6g}" for key, value in parameters.items())
    return str(event["mechanism"]).replace("_", " "), ", ".join(told)


def when(entry_time: str) -> str:
    """A recorded day in UTC; of earlier versions, a time to the second.

    >>> when("2026-11-21")
    '2026-11-21'
    >>> when("2026-11-21T19:25:27.035+00:00")
    '2026-11-21 19:25:27'
    """
    return entry_time[:19].replace("T", " ")


def left_of_limit(earlier: Sequence[str]) -> str:
    """What a new block has of its data set's limit.

    Args:
      earlier: runs without a data set that spent on its records before.

    >>> left_of_limit([]), left_of_limit(["first"])
    ('the whole limit', 'what first left of the limit')
    """
    return f"what {', '.join(earlier)} left of the limit" if earlier else "the whole limit"


def quoted(text: str) -> str:
    r"""Free text in quotes, with nothing in it that a terminal or a browser would obey.

    >>> print(quoted('so "they" say' + chr(27)))
    "so \"they\" say\u001b"
    """
    told = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in told
    )


def _similar(body: Mapping[str, Any]) -> str:
    if "similar" not in body:
        return ""
    return f", {body['similar']:,} rows that look like known ones among them: " + quoted(
        body["reason"]
    )


def _apart(body: Mapping[str, Any]) -> str:
    if "apart" not in body:
        return ""
    apart = body["apart"]
    return f"; {', '.join(apart['campaigns'])} said to be about other people: " + quoted(
        apart["reason"]
    )


def _limit(body: Mapping[str, Any]) -> str:
    group = f" ({body['group_column']})" if body["group_column"] else ""
    return (
        f"epsilon {body['epsilon']:g} at delta {body['delta']:.3g}, {body['adjacency']}, "
        f"unit {body['unit']}{group}"
    )


def _plural(number: int, word: str, *, count: bool = True) -> str:
    said = word if number == 1 else f"{word}s"
    return f"{number:,} {said}" if count else said
