"""The sentences of a certificate. They belong to its format: other words, another number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dpal.certificate.read_and_seal import FORMAT
from dpal.privacy import Unit

WHO_SEES = {
    "hidden": "nobody: models leave, and neither who was selected nor how many",
    "visible": "anyone: the ids of the selected leave",
    "paper": "anyone: every noisy score and the ids of the selected leave",
    "random": "anyone: records are drawn by chance and none is read",
}

NO_DATA_SET = "no data set registered: campaigns on the same records are not summed"
DATA_SET = "summed with the other campaigns that the ledger holds for this data set"

_TIMES = (
    "times that others keep are not protected: when a task began and ended, as the orchestrator, "
    "the model registry, file systems and stores record it, can tell of counts that are not "
    "released, and so can the order of entries of several campaigns in one ledger"
)

_PUBLIC_VALIDATION = "metrics on the validation set are not charged, and that set is not protected"
_HYPERPARAMETERS = "hyperparameters are not charged, on whatever data they were chosen"
_OTHER_HYPERPARAMETERS = (
    "hyperparameters that differ in no trial of the plan are not charged, on whatever data they "
    "were chosen"
)

_CAMPAIGN: dict[str, Any] = {
    "assumptions": {
        "R1": "a record's score depends on that record and on released models only",
        "R2": "scores lie in a public range",
        "R3": "a label depends on its own record; people who label are trusted to it",
        "R4": "sizes, steps, rates, noise and thresholds' aims were fixed before the start",
        "R5": "each record joins a batch independently, by a cryptographic source; batches "
        "never leave",
        "R6": "the noisy sum is divided by a public constant; an empty batch releases noise",
        "R7": "every record's gradient is clipped; one without finite gradient counts as zero",
        "R8": "no statistic of private records enters anything without being charged",
        "R9": "the unit is what is protected: under unit record, one record, so that a person "
        "with several is not protected as a person",
        "R10": "the optimizer sees released gradients only",
    },
    "exceptions": [
        _PUBLIC_VALIDATION,
        _HYPERPARAMETERS,
        "who is in the pool, its size and the plan are public",
        "checks of the data before the start (a missing value, a repeated id) are not charged",
        "what the labeler sees is not protected from the labeler",
    ],
    "tuning": "one campaign is certified, not a search: where several were run on the same "
    "records to choose between them, each has its own certificate and their losses add up",
}
_CAMPAIGN_2 = {
    **_CAMPAIGN,
    "exceptions": [
        *_CAMPAIGN["exceptions"],
        _TIMES,
        "the figures of a campaign that ended before its plan was done are what its released "
        "events cost, when the end was decided without looking at results; the promise holds "
        "whatever decided it",
    ],
}

_IMPROVEMENT = {
    "public": "public records and the labels bought for them are not protected by anything",
    "fine_tuning": "computed from released weights and public records alone: post-processing",
    "declared": "what was declared of the start is repeated, and was checked by nobody",
}
_IMPROVEMENT_2 = {
    **_IMPROVEMENT,
    "start": "the start's certificate was computed again from its own entries; where it came as a "
    "file, nobody checked who wrote it",
    "times": _TIMES,
}

_VOTING = {
    "ballot": "one record belongs to one teacher, so that one whole ballot of each query is "
    "replaced, under both adjacencies; the number of teachers is public",
    "partitions": "that no record was seen by two teachers, and that its part does not depend on "
    "other records, is this program's statement, or that of whoever trained them",
    "other_accounts": "other accounts and campaigns on the same records are not in this sum, but "
    "for what `before` names",
    "queries": "queries are public records and are not protected",
    "student": "what is learned from released labels is post-processing",
    "data_dependent": "no figure here depends on votes; where answers left within a bound, what "
    "was told of their cost is a release of its own, charged here",
}
_VOTING_2 = {
    **_VOTING,
    "spent": "what the blocks released so far cost, when it was decided without looking at their "
    "answers that no further one is asked; the promise holds whatever decided it",
    "times": _TIMES,
}

_NEAR = {
    "ballot": "private records vote themselves, each by its own place, its own label and how often "
    "it voted; one of them votes on at most so many queries of a block as `near` says, on each "
    "once, however many are asked",
    "partitions": "places are those of a public encoder, and distances are chosen by public "
    "records alone: this program's statement",
}

_NEAR_GROUPS = {
    **_NEAR,
    "ballot": "private records vote themselves: those of a group that are near a query cast one "
    "vote together, the mean of theirs, by their own places, their own labels and how often the "
    "group voted; it votes on at most so many queries of a block as `near` says, on each once, "
    "however many are asked",
}
_NEAR_BLOCKS = {
    "campaigns": "in so many last blocks as `near` says everybody may vote on every query, and is "
    "charged for it: an answer depends on its query, on these records and on noise, and on no "
    "other query",
}

_BUDGETS = {
    "budgets": "teachers that `budgets` names vote on the first queries of each block, as many as "
    "stand there, and on no others; what their records are charged is the `epsilon` there, at the "
    "delta of the promise; which teachers these are, and what they promise, is public",
}

_CONSENSUS = {
    "consensus": "a public model answers, which read no private record; teachers answer where so "
    "many of them name another class that it shows through noise, as often as `consensus` says at "
    "most, and after that nothing is answered: which queries these are is charged, however many "
    "are passed; the queries and their order were chosen without looking at private records",
}

_LISTED = {
    "releases": "what is released about private records is the list in the plan, each with its "
    "events and drawn as the ledger says; that the program draws what an event says is the "
    "statement of whoever wrote this kind of run",
    "other_runs": "other runs on the same records are not in this sum, but for what the ledger "
    "holds for a registered data set",
    "times": _TIMES,
}

_ALL: Final[Mapping[int, Mapping[str, dict[str, Any]]]] = {
    1: {"campaign": _CAMPAIGN, "improvement": _IMPROVEMENT, "voting": _VOTING},
    2: {
        "campaign": _CAMPAIGN_2,
        "improvement": _IMPROVEMENT_2,
        "voting": _VOTING_2,
        "listed": _LISTED,
    },
}

_PAPER = {
    "profile": "paper: delta is at least one over the size of the pool, as in published results, "
    "so that the promise would also allow publishing records; it is for reproducing those results, "
    "and not to be promised to anybody"
}

WHO_WAS_DRAWN = (
    "chance cohorts were drawn by coins that nobody outside sees, and the promise counts on that: "
    "against somebody who learns who was drawn, or how many, it does not hold"
)
_SELF_TRAINING = {
    "self_training": "records that nobody labeled trained on labels that a released model gave "
    "them: a function of that record, of released models and of public records; they are charged "
    "for it as a cohort of their own"
}
_GROUPS = {
    "groups": "a group takes part with all its records: in a step the gradients of some of them "
    "are averaged, and the average is clipped as one record's would be; it is selected by its "
    "first record, and sizes here count groups"
}
_SEARCHED = {
    "tuning": "settings of the training were chosen among the trials that the plan lists, and "
    "every trial and every figure of it that reads private records is charged here; other searches "
    "are not: where several campaigns were run on the same records to choose between them, each "
    "has its own certificate and their losses add up",
}
_FITTED = {
    "assumptions": {
        **_CAMPAIGN["assumptions"],
        "R5": "every record that a phase labels takes part in its one release, once, and no other "
        "record does",
        "R6": "noise is added to sums over records, and nothing but noisy sums leaves",
        "R7": "every record's features are clipped, and its label has a code of length 1 at most; "
        "one whose features are not finite counts as having none",
        "R10": "the model is solved from noisy sums and from what is public only",
    }
}
_WHO_BELONGS_TOGETHER = (
    "who belongs to which group, how many records each group has, and in which order they stand, "
    "is public"
)
_STOPPED = {
    "exceptions": [
        *_CAMPAIGN_2["exceptions"][:-1],
        "the campaign ended by its own rule, in view of what it released: its figures count all "
        "that its plan could have released",
    ]
}

_PROTECTED_VALIDATION = (
    "metrics are computed from noisy counts of validation records, which are charged as a cohort "
    "of their own: no record of the pool is among them; how many they are, and which classes there "
    "are, is public; other campaigns measured on the same records are not in this sum"
)

_PROTECTED_GROUPS = (
    "metrics are computed from noisy counts of validation records, of each group a number at most "
    "that is declared, the first in order; groups are charged for them as a cohort of their own: "
    "none of them has records in the pool; how many records and groups there are, and which "
    "classes, is public; other campaigns measured on the same records are not in this sum"
)

_HELD_OUT = (
    "the validation records are a share of the pool's file, held out by a coin that is declared "
    "and no secret: a record's id, or its group where groups are the unit, decides alone which of "
    "the two it is in, and it is charged for that one; who knows the id knows which"
)

STATEMENTS = _CAMPAIGN_2  # of a campaign, as they are written now


def statements_about(
    *,
    stopped: bool,
    secret_draws: bool,
    self_training: bool,
    protected_validation: bool = False,
    measured_groups: bool = False,
    held_out: bool = False,
    groups: bool = False,
    searched: bool = False,
    fitted: bool = False,
) -> dict[str, Any]:
    """Sentences of a campaign that only some campaigns need, in place of those that all have.

    Args:
      stopped: whether it ended early by its own rule.
      secret_draws: whether cohorts were drawn by secret coins.
      self_training: whether its plan has a phase on pseudo-labels.
      protected_validation: whether figures are charged to the records that they are of.
      measured_groups: whether whole groups of these are.
      held_out: whether these records are a share of the pool's file.
      groups: whether all records of a group take part together.
      searched: whether settings of the training were tried first, each trial charged.
      fitted: whether a head was fitted from sums over records, instead of trained by steps.
    """
    said: dict[str, Any] = {}
    for needed, sentences in (
        (stopped, _STOPPED),
        (secret_draws, {"secret_draws": WHO_WAS_DRAWN}),
        (self_training, _SELF_TRAINING),
        (groups, _GROUPS),
        (searched, _SEARCHED),
        (fitted, _FITTED),
    ):
        said |= sentences if needed else {}
    instead = {}
    if protected_validation:
        figures = _PROTECTED_GROUPS if measured_groups else _PROTECTED_VALIDATION
        instead[_PUBLIC_VALIDATION] = figures
    if searched:
        instead[_HYPERPARAMETERS] = _OTHER_HYPERPARAMETERS
    if instead:
        listed = said.get("exceptions", _CAMPAIGN_2["exceptions"])
        said["exceptions"] = [instead.get(exception, exception) for exception in listed]
    if held_out:
        said["exceptions"] = [*said["exceptions"], _HELD_OUT]
    if groups:
        listed = said.get("exceptions", _CAMPAIGN_2["exceptions"])
        said["exceptions"] = [_WHO_BELONGS_TOGETHER, *listed]
    return said


def statements(kind: str, form: int = FORMAT, *, paper: bool = False) -> dict[str, Any]:
    """The sentences of a kind of certificate in a format.

    Args:
      kind: campaign, improvement, voting or listed.
      form: number of the format; the first says nothing of large deltas.
      paper: whether delta is at least one over the size of the pool.
    """
    return {**_ALL[form][kind], **(_PAPER if paper and form > 1 else {})}


def vote_statements(
    form: int = FORMAT,
    *,
    near: Mapping[str, Any] | None = None,
    unit: Unit = Unit.RECORD,
    budgets: bool = False,
    consensus: bool = False,
) -> dict[str, Any]:
    """The sentences of votes in a format.

    Args:
      form: number of the format.
      near: how single records vote near a query, in place of teachers; None where they do not.
      unit: what is protected.
      budgets: whether some teachers promise their records less than others.
      consensus: whether a public model answers, and teachers where they object.
    """
    said = {
        **statements("voting", form),
        **(_BUDGETS if budgets else {}),
        **(_CONSENSUS if consensus else {}),
    }
    if not near:
        return said
    own = _NEAR if unit is Unit.RECORD else _NEAR_GROUPS
    return {**said, **own, **(_NEAR_BLOCKS if near.get("blocks") else {})}
