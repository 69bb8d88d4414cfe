"""All settings of a run, from the few that a person decides in a short form.

What a run of that name has begun with, it goes on with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

import yaml

from dpal.config.briefs import Brief, CampaignBrief, ImprovementBrief, VotesBrief, VotingBrief
from dpal.config.campaign import parse_config
from dpal.config.pate_sections import AUTO
from dpal.config.runtime import RunConfig
from dpal.data.groups import count_groups, read_groups
from dpal.data.inspect_rows import Inventory
from dpal.data.sources import Role, open_source
from dpal.errors import ConfigError
from dpal.files.artifacts import RECORD
from dpal.files.stored_objects import Place
from dpal.labels import Task
from dpal.privacy import Unit
from dpal.runs.ensemble_data_set_holds import owner_of_ballots
from dpal.runs.first_settings import DataLook, first_settings, inventory, look_at, training_for
from dpal.runs.kinds import RunKind, folder_of
from dpal.runs.read_recorded_settings import recorded_as

_BY_PEOPLE = 1000  # labels of public records, at most
_OF_A_CLUSTER = 10  # public records, of which every cluster gives as many
_RECORDS_OF_A_TEACHER = 40
_FEWEST, _MOST = 25, 250  # teachers, where nobody says how many
_QUESTIONS = 4  # for each teacher: noise on the votes grows with their root
_AGREEMENT = 0.7  # of teachers, that is answered
_WAVELETS = ("scattering", "coarse_scattering")
# As in the template of the sample digits: more queries are answered, and the student learns from
# the others, too.
_SLOWLY: dict[str, Any] = {"learning_rate": 0.001}
_FROM_ALL: dict[str, Any] = {
    "method": "mixmatch",
    "epochs": 80,
    "noise": 0.1,
    "unlabeled_weight": 500,
}


def settings_of_brief(kind: RunKind, brief: Brief) -> RunConfig:
    """Settings that follow from what was decided; nothing is released.

    Args:
      kind: of run.
      brief: its form, checked.

    Raises:
      ConfigError: what was decided contradicts itself, or the run of this name is of another kind.
      DataError: a file is no pool, or no record with a label can be held out.
    """
    folder = folder_of(parse_config({"name": brief.name}))
    if (folder.root / RECORD).is_file() and (begun := recorded_as(folder, kind.settings)):
        return begun
    module, _, name = kind.short_form_settings.rpartition(".")
    decide = cast("Callable[[Brief], Mapping[str, Any]]", getattr(import_module(module), name))
    return kind.parse({**yaml.safe_load(kind.line or "{}"), "name": brief.name, **decide(brief)})


def campaign_settings(brief: CampaignBrief) -> dict[str, Any]:
    """A campaign's, as `dpal init --data` writes them."""
    look = look_at(
        brief.data,
        brief.validation,
        label_column=brief.label_column,
        group_column=brief.group_column,
    )
    text = first_settings(
        look,
        brief.name,
        why_public=brief.why_public.strip() or None,
        epsilon=brief.epsilon,
        labels=brief.labels,
        weights=brief.weights,
    )
    values: dict[str, Any] = yaml.safe_load(text)
    if brief.group_column is not None:
        values["data"]["group_column"] = brief.group_column
        values["privacy"]["unit"] = Unit.GROUP.value
    return values


def improvement_settings(brief: ImprovementBrief) -> dict[str, Any]:
    """An improvement's: the public records that are chosen are diverse, which is free.

    Raises:
      ConfigError: there are fewer public records than labels.
    """
    held = _public(brief.public, brief.label_column)
    labels = brief.labels or _whole_clusters(max(1, min(held.rows // 2, _BY_PEOPLE)))
    if labels > held.rows:
        raise ConfigError(
            f"labels {labels:,} are asked for and there are {held.rows:,} public records in "
            f"{brief.public}; lower it, or give more public records"
        )
    return {
        "start": {"campaign": brief.campaign},
        "public": {"pool": str(brief.public), "label_column": brief.label_column},
        "choice": {"labels": labels},
        "labeler": {"kind": "oracle" if held.fully_labeled else "file"},
    }


def voting_settings(brief: VotingBrief) -> dict[str, Any]:
    """Private voting's: a teacher for so many records, questions in proportion.

    Raises:
      ConfigError: private records lack labels, or there are fewer of them, or of public ones, than
        is asked for.
    """
    look = look_at(
        brief.data,
        brief.validation,
        label_column=brief.label_column,
        group_column=None,  # the held-out records need none
    )
    held, owners = _public(brief.public, brief.label_column), _owners(brief, look)
    if not look.labeled:
        raise ConfigError(
            f"{brief.data} has records without a label, and teachers learn from labels; leave "
            "those out, or have people label in a campaign"
        )
    teachers = brief.teachers or min(
        owners, max(_FEWEST, min(_MOST, owners // _RECORDS_OF_A_TEACHER))
    )
    queries = brief.queries or min(held.rows, _QUESTIONS * teachers)
    for name, wanted, there, what in (
        ("teachers", teachers, owners, "groups or records that are private"),
        ("queries", queries, held.rows, "public records"),
    ):
        if wanted > there:
            raise ConfigError(
                f"{name} {wanted:,} are asked for and there are {there:,} {what}; lower it"
            )
    data = _features(brief, look)
    on_wavelets = data["extractor"] in _WAVELETS
    teaching = {"count": teachers, **(_SLOWLY if on_wavelets else {})}
    teaching |= {} if brief.group_column is None else {"group_column": brief.group_column}
    answered = {"answer_from": _AGREEMENT} if look.task is Task.SINGLE_LABEL else {}
    return {
        "data": data,
        "validation": {"public": True, "why": brief.why_public},
        "public": {"pool": str(brief.public), "label_column": brief.label_column},
        "teachers": teaching,
        "voting": {"queries": queries, **answered},
        "privacy": {"epsilon": brief.epsilon},
        "student": _SLOWLY | _FROM_ALL if on_wavelets else {},
        "model": {"name": "logistic"},
    }


def votes_settings(brief: VotesBrief) -> dict[str, Any]:
    """Those of votes on ballots in files."""
    return {
        "ballots": {"files": list(map(str, brief.ballots))},
        "privacy": {
            "epsilon": brief.epsilon,
            "records": brief.records,
            "unit": brief.unit.value,
        },
        "voting": {"answer_from": brief.answer_from},
        "after": brief.after,
    }


def _public(place: Place, label_column: str) -> Inventory:
    return inventory(open_source(place, Role.POOL, label_column=label_column))


def _owners(brief: VotingBrief, look: DataLook) -> int:
    """What teachers are given whole: groups, where there are any, or records."""
    pool = open_source(brief.data, Role.POOL, label_column=brief.label_column)
    column = owner_of_ballots(brief.group_column or AUTO, pool, None)
    return look.rows if column is None else count_groups(read_groups(pool, column))


def _whole_clusters(labels: int) -> int:
    return labels - labels % _OF_A_CLUSTER if labels >= _OF_A_CLUSTER else labels


def _features(brief: VotingBrief, look: DataLook) -> dict[str, Any]:
    """Where the records are, and the free features that suit them."""
    training = training_for(look, brief.weights)
    data: dict[str, Any] = {
        "pool": str(brief.data),
        "validation": str(brief.validation),
        "label_column": brief.label_column,
        "extractor": training.extractor,
    }
    if training.backbone is not None:
        data["backbone"] = training.backbone.model_dump(mode="json")
    if training.normalises:
        data["normalisation"] = {"kind": "validation"}
    return data
