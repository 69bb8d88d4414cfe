"""What a campaign costs when its own noisy outputs decide who joins which cohort.

A record's history is a path: it stays in the pool for some selections, then enters a
cohort. Where the path depends on noisy outputs, bounding every path by itself proves
nothing, because the outputs that send a record on a path also carry loss. The envelope
takes the worst path after every single output:

    V_t(x) = E_{y ~ P_t} max{ H_t(x - l_t(y)), V_{t+1}(x - l_t(y)) },

H_t being the profile of everything that happens to a record after it entered at
selection t, V_{K+1} that of what happens to those who never entered (nothing, unless more is
released about them than selections), P_t the outputs of selection t and l_t(y) their
privacy loss. For anchored answers the output "yes" or "no" is what decides, so yes leads to
H_t and no to the worse of both (a shortage of yes is filled by chance). Proof:
docs/guarantee.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpal.accounting.events import NEVER_SELECTED, Answer, Event, Release
from dpal.accounting.events.event import Outcome
from dpal.accounting.pld import compose, discretise, fit_grid
from dpal.accounting.profiles import Grid, PrivacyProfile, pointwise_maximum
from dpal.accounting.step_curves import Direction
from dpal.privacy import Adjacency


def campaign_profile(
    releases: Sequence[Release], *, grid: Grid, adjacency: Adjacency, direction: Direction
) -> PrivacyProfile:
    """The profile of any record of the pool, whatever path it takes.

    Args:
      releases: all of them, in order.
      grid: from `grid_of`.
      adjacency: which change of the data is meant.
      direction: which side has the record.
    """
    stayed = events_after_entry(releases, last_phase(releases) + 1)
    value = compose(stayed, grid=grid, adjacency=adjacency, direction=direction)
    for phase in range(last_phase(releases), 0, -1):
        later = events_after_entry(releases, phase)
        entered = compose(later, grid=grid, adjacency=adjacency, direction=direction)
        value = _before_selection(
            selection_events(releases, phase), entered, value, adjacency, direction
        )
    initial = events_after_entry(releases, 0)
    return pointwise_maximum(
        [value, compose(initial, grid=grid, adjacency=adjacency, direction=direction)]
    )


@dataclass(frozen=True)
class Path:
    """What happens to the records that end in one cohort.

    Attributes:
      events: all releases about them but their answers, in any order.
      answers: what they were asked, and whether the answer was yes.
    """

    events: tuple[Event, ...] = ()
    answers: tuple[tuple[Answer, bool], ...] = ()


def path_of(releases: Sequence[Release], cohort: int) -> Path:
    """The path into a cohort; one beyond the last phase for the never-selected."""
    pooled: list[Event] = []
    answers: list[tuple[Answer, bool]] = []
    for phase in range(1, cohort + 1):
        for event in selection_events(releases, phase):
            if answer := event.answer:
                answers.append((answer, phase == cohort))
            else:
                pooled.append(event)
    return Path((*pooled, *events_after_entry(releases, cohort)), tuple(answers))


def path_epsilon(
    path: Path, *, delta: float, grid: Grid, adjacency: Adjacency, direction: Direction
) -> float:
    """The epsilon of one path, as if it had been certain beforehand.

    It shows how evenly a plan spends and is never a certificate: membership is not certain.
    An answer of chances (p, q) in the two worlds turns a profile H into p * H(x - ln(p/q)).
    """
    chance = math.prod(p for p, _ in _answered(path, adjacency, direction))
    loss = greatest_loss(path, adjacency, direction)
    if delta >= chance:
        return 0.0
    profile = compose(path.events, grid=grid, adjacency=adjacency, direction=direction)
    return max(0.0, loss + profile.epsilon(delta / chance))


def greatest_loss(path: Path, adjacency: Adjacency, direction: Direction) -> float:
    """The largest privacy loss of all answers of a path together, in one direction."""
    return sum(_loss(p, q) for p, q in _answered(path, adjacency, direction))


def _answered(path: Path, adjacency: Adjacency, direction: Direction) -> list[Outcome]:
    """Chances of a path's answers; the worst side of the threshold has the largest p, least q."""
    outcomes = []
    for answer, selected in path.answers:
        pairs = answer.outcomes(adjacency, direction, yes=selected)
        outcomes.append((max(p for p, _ in pairs), min(q for _, q in pairs)))
    return outcomes


def grid_of(
    releases: Sequence[Release], *, delta: float, adjacency: Adjacency, accuracy: float
) -> Grid:
    """A grid for every path of a campaign."""
    paths = [path_of(releases, cohort) for cohort in range(last_phase(releases) + 2)]
    grid = fit_grid(
        [path.events for path in paths], delta=delta, adjacency=adjacency, accuracy=accuracy
    )
    # Answers move profiles up by their losses; above its end a grid knows nothing.
    moved = max(
        sum(answer_loss(answer, adjacency, selected=yes) for answer, yes in path.answers)
        for path in paths
    )
    size = 1 << math.ceil(math.log2(grid.size + moved / grid.interval))
    return Grid(grid.interval, grid.low, size)


def events_after_entry(releases: Sequence[Release], cohort: int) -> list[Event]:
    """Everything that happens to a cohort once it has entered.

    One beyond the last phase is the never-selected: what is no selection and names them.
    """
    name = NEVER_SELECTED if cohort > last_phase(releases) else str(cohort)
    return [
        charge.event
        for release in releases
        if release.phase > cohort or not release.selects
        for charge in release.charges
        if name in charge.cohorts
    ]


def last_phase(releases: Sequence[Release]) -> int:
    """The last phase that released something."""
    return max((release.phase for release in releases), default=0)


def selection_events(releases: Sequence[Release], phase: int) -> list[Event]:
    """What a selection releases about a record of the pool, in order."""
    return [
        charge.event
        for release in releases
        if release.selects and release.phase == phase
        for charge in release.charges
    ]


def answer_loss(answer: Answer, adjacency: Adjacency, *, selected: bool) -> float:
    """Greatest privacy loss of one answer, in either direction."""
    return max(
        abs(_loss(p, q))
        for direction in Direction
        for p, q in answer.outcomes(adjacency, direction, yes=selected)
    )


def _before_selection(
    events: Sequence[Event],
    entered: PrivacyProfile,
    stayed: PrivacyProfile,
    adjacency: Adjacency,
    direction: Direction,
) -> PrivacyProfile:
    """V_t from H_t and V_{t+1}."""
    value = pointwise_maximum([entered, stayed])
    for event in reversed(events):
        if answer := event.answer:
            value = _before_answer(answer, entered, value, adjacency, direction)
            continue
        step, count = event.composition()
        losses = discretise(
            step, interval=value.grid.interval, adjacency=adjacency, direction=direction
        )
        for _ in range(count):
            value = value.after(losses.masses, losses.first, losses.infinite)
    return value


def _before_answer(
    answer: Answer,
    entered: PrivacyProfile,
    other: PrivacyProfile,
    adjacency: Adjacency,
    direction: Direction,
) -> PrivacyProfile:
    """Yes leads into the cohort (or, beyond the label budget, out of the pool for good)."""
    yes = answer.outcomes(adjacency, direction, yes=True)
    no = answer.outcomes(adjacency, direction, yes=False)
    return pointwise_maximum(
        [
            entered.scaled(p, _loss(p, q)).plus(other.scaled(p_no, _loss(p_no, q_no)))
            for (p, q), (p_no, q_no) in zip(yes, no, strict=True)
        ]
    )


def _loss(p: float, q: float) -> float:
    return math.log(p / q)
