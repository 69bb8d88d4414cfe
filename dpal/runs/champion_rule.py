"""The rule by which a version of a model becomes the champion: not worse than any that was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpal.reports.validation_figures import percent
from dpal.runs.model_line import VersionFacts

_ROUNDING = 1e-12  # a loss of just what is allowed is allowed, however the machine adds it up


@dataclass(frozen=True, kw_only=True)
class ChampionVerdict:
    """Whether a rule makes a version the champion.

    Attributes:
      moves: whether it does.
      reason: why, or why not; as the end of a sentence.
    """

    moves: bool
    reason: str


def judge(
    now: VersionFacts,
    champions: Mapping[str, VersionFacts],
    current: str | None,
    *,
    most_loss: float,
    alike: Callable[[VersionFacts], bool],
) -> ChampionVerdict:
    """Decides by the rule not_worse, on released figures of validation sets alone.

    Every version that ever was champion counts, so that small losses do not add up over reruns.
    What cannot be compared is left to a person.

    Args:
      now: the new version, whose certificate holds.
      champions: versions that are or were champion, by number.
      current: number of the champion; None where no version is.
      most_loss: by how much the figure may be lower.
      alike: whether an earlier version was measured on the same records.
    """
    if now.worthless is not None:
        return ChampionVerdict(moves=False, reason=now.worthless.rstrip("."))
    if current is None and not champions:
        return ChampionVerdict(moves=True, reason="no version of this line was champion before")
    if current is None or current not in champions:
        return ChampionVerdict(
            moves=False, reason="the champion was named by nobody that is recorded"
        )
    leader = champions[current]
    if leader.origin != now.origin:
        was = leader.origin or "an earlier version of dpal, which named no line"
        return ChampionVerdict(
            moves=False, reason=f"version {current} is of {was}, and this one of {now.origin}"
        )
    if not alike(leader):
        return ChampionVerdict(
            moves=False,
            reason=f"version {current} is not known to be measured on the same validation set",
        )
    value = now.value or 0.0
    highest, best = max(
        (version.value or 0.0, number)
        for number, version in champions.items()
        if version.origin == now.origin and alike(version)
    )
    compared = f"{now.figure} {percent(value)} against {percent(highest)} of version {best}"
    most = f"by more than {100 * most_loss:.2f} points"
    if value < highest - most_loss - _ROUNDING:
        return ChampionVerdict(moves=False, reason=f"{compared}, lower {most}")
    return ChampionVerdict(moves=True, reason=f"{compared}, not lower {most}")
