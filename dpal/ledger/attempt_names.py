"""Names of releases that were begun more than once, and of their checkpoints.

The first attempt has the name that the plan gives ("phase-2/training"), the next ones carry
a number ("phase-2/training#2"). What an attempt persisted on its way is named by the steps
done ("phase-2/training#2@400").
"""

from __future__ import annotations


def attempt_name(release: str, number: int) -> str:
    """Names an attempt at a release of the plan.

    >>> attempt_name("phase-2/training", 2)
    'phase-2/training#2'
    """
    return release if number == 1 else f"{release}#{number}"


def planned_name(name: str) -> str:
    """The release of the plan that an attempt, or one of its checkpoints, belongs to.

    >>> planned_name("phase-2/training#2@400")
    'phase-2/training'
    """
    return name.partition("@")[0].partition("#")[0]


def attempt_number(name: str) -> int:
    """Which attempt a name speaks of: 1, 2, ...; 0 if it is no attempt's name.

    >>> attempt_number("phase-2/training"), attempt_number("phase-2/training#2")
    (1, 2)
    """
    text = name.partition("#")[2] or "1"
    number = int(text) if text.isdecimal() else 0
    return number if attempt_name(planned_name(name), number) == name else 0


def checkpoint_name(attempt: str, steps: int) -> str:
    """Names what an attempt persisted after so many steps."""
    return f"{attempt}@{steps}"
