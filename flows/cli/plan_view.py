"""What `dpal plan` shows of a run of any kind: its plan, why it is so, and other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from dpal.config.campaign import override
from dpal.config.runtime import RunConfig
from dpal.errors import ConfigError, DpalError
from dpal.planning.explain_releases import explain_releases, grown
from dpal.reports.report import Table
from dpal.runs.kinds import RunKind, kind_of
from dpal.runs.store_sync import require_store_for_workers
from flows.cli.sweep_values import sweep_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Drawn only when they are wanted, by what is imported then: matplotlib takes half a second.
Figures = Mapping[str, "Callable[[], Figure]"]
T = TypeVar("T")

_PROMISE = ("target_epsilon", "delta", "adjacency", "unit", "accountant")


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """Something to show.

    Attributes:
      record: for programs.
      tables: for people.
      words: paragraphs below the tables; a title and a text, either may be empty.
      figures: by file name; drawn only when they are wanted.
    """

    record: dict[str, Any]
    tables: tuple[Table, ...]
    words: tuple[tuple[str, str], ...]
    figures: Figures


class RunPlanViews:
    """The views of a plan that `dpal plan` shows, for a run of any kind."""

    def plan(self, config: RunConfig, *, explained: bool, rehearsed: bool = False) -> PlanView:
        """The certified plan.

        Args:
          config: settings of any kind.
          explained: whether to say why it has its numbers.
          rehearsed: whether to rehearse it on public records.

        Raises:
          ConfigError: a rehearsal is asked for, and campaigns alone have any; or a campaign that is
            called could not train on the pool.
        """
        if rehearsed:
            raise ConfigError(
                f"--rehearse is for campaigns, whose validation set stands in for the pool; "
                f"{config.name} is {kind_of(config).in_sentences}"
            )
        _require_store(config)
        run = kind_of(config).use_cases().plan(config)
        certified, plan = run.certified, run.plan
        summary = certified.summary()
        closing = (
            f"certified: {certified.epsilon:.4f} of {plan.target.epsilon:g} (accountant "
            f"{plan.accountant}; second opinion {certified.epsilon_oracle:.4f})"
        )
        words = [("", closing), *(("", sentence) for sentence in run.plan_words())]
        record = {**summary, **run.plan_record()}
        if explained:
            explanation = explain_releases(certified)
            record["explanation"] = [asdict(remark) for remark in explanation]
            words += [(remark.topic, remark.text) for remark in explanation]

        def drawn() -> Figure:
            from dpal.reports.plots.plan import growth_figure

            return growth_figure(summary, grown(plan))

        return PlanView(
            record=record,
            tables=tuple(run.plan_tables()),
            words=tuple(words),
            figures={"budget-by-release.png": drawn},
        )

    def sweep(self, config: RunConfig, text: str) -> PlanView:
        """Plans over the values of one setting.

        Args:
          config: what the person wrote.
          text: KEY=START:STOP:STEP (both ends included) or KEY=a,b,c.
        """
        key, values = sweep_values(text)
        return _plans(config, f"Plans over {key}", [{key: value} for value in values])

    def compare(self, config: RunConfig) -> PlanView:
        """Every way to run it that its kind names.

        Raises:
          ConfigError: there is one way only.
        """
        ways = kind_of(config).alternatives
        if not ways:
            raise ConfigError(
                f"--compare has nothing to compare for {kind_of(config).in_sentences}"
            )
        settings = [dict(zip(ways, chosen, strict=True)) for chosen in product(*ways.values())]
        return _plans(config, "Ways to run it", settings)

    def published(self, config: RunConfig) -> PlanView:
        """Refuses: there is no published schedule but for campaigns."""
        raise ConfigError(
            f"--published is for campaigns, whose schedule a paper published; {config.name} is "
            f"{kind_of(config).in_sentences}"
        )


def save_figures(figures: Figures, folder: Path) -> list[str]:
    """Writes figures and returns their paths."""
    from dpal.reports.plots.style import save

    for name, figure in figures.items():
        save(figure(), folder / name)
    return [str(folder / name) for name in figures]


def with_progress_bar(ways: Sequence[T]) -> Iterable[T]:
    """The same, under a bar on stderr where somebody watches."""
    bar: Iterable[T] = tqdm(ways, desc="planning", unit="plan", disable=None, leave=False)
    return bar


def with_setting(kind: RunKind, config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """The same settings but for some, checked.

    Raises:
      ConfigError: a setting is unknown, or has no such value.
    """
    values = config.model_dump(mode="json")
    for key, value in changes.items():
        override(values, key, value)
    return kind.parse(values)


def _require_settings(
    kind: RunKind, config: RunConfig, settings: Sequence[Mapping[str, Any]]
) -> None:
    """Requires that one of several ways can be wished for: a setting that there is not is no row.

    Raises:
      ConfigError: none of them; why not the first.
    """
    refusals = []
    for changes in settings:
        try:
            with_setting(kind, config, changes)
        except ConfigError as refusal:
            refusals.append(refusal)
    if len(refusals) == len(settings):
        raise refusals[0]


def _require_store(config: RunConfig) -> None:
    """Requires a store that workers can have labels through, where they train campaigns.

    Raises:
      ConfigError: theirs may not hold labels.
    """
    if config.calls_campaigns:
        require_store_for_workers(config.runtime)


def _plans(config: RunConfig, title: str, settings: Sequence[Mapping[str, Any]]) -> PlanView:
    """Plans side by side; where there is none, the reason."""
    _require_store(config)
    kind, rows = kind_of(config), []
    _require_settings(kind, config, settings)
    for changes in with_progress_bar(settings):
        try:
            certified = kind.use_cases().plan(with_setting(kind, config, changes)).certified
        except DpalError as refusal:
            rows.append({**changes, "planned": False, "reason": str(refusal)})
            continue
        summary = certified.summary()
        rows.append({**changes, "planned": True, "plan_digest": summary["plan_digest"],
                     **{name: summary[name] for name in (*kind.telling, *_PROMISE)},
                     "epsilon": certified.epsilon,
                     "epsilon_oracle": certified.epsilon_oracle})  # fmt: skip
    varied = list(settings[0])
    columns = (*varied, *kind.telling, "epsilon", "second opinion")
    table = Table(title, columns, tuple(_cells(row, varied, kind.telling) for row in rows))

    def drawn() -> Figure:
        from dpal.reports.plots.plan import values_figure

        return values_figure(config.name, varied, rows, kind.telling)

    name = f"sweep-{varied[0]}.png" if len(varied) == 1 else "comparison.png"
    return PlanView(
        record={"name": config.name, "varied": varied, "rows": rows},
        tables=(table,),
        words=tuple(
            ("", f"no plan for {_said(row, varied)}: {row['reason']}")
            for row in rows
            if not row["planned"]
        ),
        figures={name: drawn},
    )


def _cells(
    row: Mapping[str, Any], varied: Sequence[str], telling: Sequence[str]
) -> tuple[str, ...]:
    words = [_word(row[name]) for name in varied]
    if not row["planned"]:
        return (*words, *["-"] * len(telling), "no plan", "-")
    words += [_word(row[name]) for name in telling]
    return (*words, f"{row['epsilon']:.4f}", f"{row['epsilon_oracle']:.4f}")


def _said(row: Mapping[str, Any], varied: Sequence[str]) -> str:
    return ", ".join(f"{name} {_word(row[name])}" for name in varied)


def _word(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


VIEWS = RunPlanViews()
