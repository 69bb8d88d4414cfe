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
H_t and no to the worse of both (a shortage of yes is filled by chance). Where a coin that nobody
sees decides, the record is on either path with a known chance, and
`dpal.accounting.secret_draws_amplification` mixes both. Proof: docs/guarantee.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpal.accounting.events import NEVER_SELECTED, Answer, Event, Release
from dpal.accounting.events.event import Outcome
from dpal.accounting.events.secret_draw import coin_of
from dpal.accounting.pld import compose, discretise, fit_grid
from dpal.accounting.profiles import (
    Grid,
    PrivacyProfile,
    lossless_profile,
    pointwise_maximum,
)
from dpal.accounting.secret_draws_amplification import (
    SecretCohorts,
    amplified_epsilon,
    mixed_profile,
)
from dpal.accounting.single_step_curves import Direction
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
    never = events_after_entry(releases, last_phase(releases) + 1)
    aside = value = compose(never, grid=grid, adjacency=adjacency, direction=direction)
    others_lose_nothing, aside_lose = not never, bool(never)
    drawn: SecretCohorts | None = None  # the last cohorts, out of a pool that loses nothing else
    failing = 0.0
    for phase in range(last_phase(releases), -1, -1):
        later = events_after_entry(releases, phase)
        entered = compose(later, grid=grid, adjacency=adjacency, direction=direction)
        selection = selection_events(releases, phase)
        coin = coin_of(selection)
        if coin is None or coin.entry_chance is None:
            if drawn is not None:
                value, drawn = drawn.profile(adjacency, direction), None
            value = _before_selection(selection, entered, value, adjacency, direction)
            others_lose_nothing = False
            if phase and not selection:  # all join that are in no cohort yet, candidates or not
                aside, aside_lose = pointwise_maximum([entered, aside]), True
            continue
        chance = coin.entry_chance
        failing += coin.delta
        if coin.candidate_chance < 1:
            if drawn is not None:
                value, drawn = drawn.profile(adjacency, direction), None
            value = _among_candidates(
                coin.candidate_chance, value, aside if aside_lose else None, adjacency, direction
            )
            others_lose_nothing = False
        if not others_lose_nothing:
            value = mixed_profile(chance, entered, value, adjacency=adjacency, direction=direction)
        elif drawn is None:
            drawn = SecretCohorts(chance, entered)
        else:
            drawn = drawn.preceded_by(chance, entered)
    if drawn is not None:
        value = drawn.profile(adjacency, direction)
    return value.raised(failing) if failing else value


@dataclass(frozen=True)
class Path:
    """What happens to the records that end in one cohort.

    Attributes:
      events: all releases about them but their answers, in any order.
      answers: what they were asked, and whether the answer was yes.
      chance: of taking it, or one that costs as much, where coins that nobody sees decide.
      failing: chance that more are drawn by such coins than may be labeled.
    """

    events: tuple[Event, ...] = ()
    answers: tuple[tuple[Answer, bool], ...] = ()
    chance: float = 1.0
    failing: float = 0.0


def path_of(releases: Sequence[Release], cohort: int) -> Path:
    """The path into a cohort; one beyond the last phase for the never-selected."""
    pooled: list[Event] = []
    answers: list[tuple[Answer, bool]] = []
    for phase in range(1, cohort + 1):
        for event in selection_events(releases, phase):
            if answer := event.answer:
                answers.append((answer, phase == cohort))
            elif event.entry_chance is None:
                pooled.append(event)
    events = (*pooled, *events_after_entry(releases, cohort))
    return Path(events, tuple(answers), *chance_of_entry(releases, cohort))


def chance_of_entry(releases: Sequence[Release], cohort: int) -> tuple[float, float]:
    """The chance of being drawn into a cohort like this one, and that too many are.

    Cohorts that are drawn one after the other, with nothing else that selects in between, are
    one mixture: whichever a record is in, an observer has to guess between all of them and none.
    Those that queries select are candidates whom coins drew, or all that are left.
    """
    last = last_phase(releases)
    coins = [coin_of(selection_events(releases, phase)) for phase in range(last + 1)]
    first = len(coins)
    while first and coins[first - 1] is not None:
        first -= 1
    if cohort and coins[0] is not None and coins[0].candidate_chance < 1:
        # Beside others that train unlabeled, candidates' figures count on no coin. A last phase
        # without a selection trains whoever is left.
        others_train = events_after_entry(releases, last + 1) or not selection_events(
            releases, last
        )
        alone = not others_train
        return (coins[0].candidate_chance, 0.0) if alone else (1.0, 0.0)
    alike = range(first, len(coins)) if cohort >= first else [cohort]
    drawn = [coin for phase in alike if (coin := coins[phase]) is not None]
    if cohort >= len(coins) or not drawn:
        return 1.0, 0.0
    stays = math.prod(1 - (coin.entry_chance or 0.0) for coin in drawn)
    return 1 - stays, sum(coin.delta for coin in drawn)


def path_epsilon(
    path: Path, *, delta: float, grid: Grid, adjacency: Adjacency, direction: Direction
) -> float:
    """The epsilon of one path, as if it had been certain beforehand.

    It shows how evenly a plan spends and is never a certificate: membership is not certain.
    An answer of chances (p, q) in the two worlds turns a profile H into p * H(x - ln(p/q)).
    """
    chance = path.chance * math.prod(p for p, _ in _answered(path, adjacency, direction))
    loss = greatest_loss(path, adjacency, direction)
    left = delta - path.failing
    if left >= chance:
        return 0.0
    if left <= 0:
        return math.inf
    profile = compose(path.events, grid=grid, adjacency=adjacency, direction=direction)
    epsilon = max(0.0, loss + profile.epsilon(left / chance))
    return amplified_epsilon(epsilon, path.chance) if path.chance < 1 else epsilon


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


def _among_candidates(
    chance: float,
    candidate: PrivacyProfile,
    aside: PrivacyProfile | None,
    adjacency: Adjacency,
    direction: Direction,
) -> PrivacyProfile:
    """Of those whom no coin drew: candidates of later queries, and the others.

    Args:
      chance: of being a candidate.
      candidate: profile of what happens to candidates.
      aside: of what happens to the others; None for nothing.
      adjacency: which change of the data is meant.
      direction: which side has the record.
    """
    if aside is None and adjacency is not Adjacency.REPLACE_ONE:
        return SecretCohorts(chance, candidate).profile(adjacency, direction)
    nothing = lossless_profile(candidate.grid) if aside is None else aside
    return mixed_profile(chance, candidate, nothing, adjacency=adjacency, direction=direction)


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
