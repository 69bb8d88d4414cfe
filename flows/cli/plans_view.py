"""Plans side by side in `dpal plan`: --sweep over a setting, --compare over ways to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from tqdm import tqdm

from dpal.config.campaign import CampaignConfig, override, parse_config
from dpal.errors import ConfigError
from dpal.planning.alternatives import attempt, consider, variants
from dpal.planning.plan import CertifiedPlan
from dpal.planning.spec import CampaignSpec
from dpal.reports.figures.alternatives import comparison_figure, sweep_figure
from dpal.reports.figures.plan import promise_words
from dpal.reports.report import Table
from flows.cli.plan_view import View
from flows.cli.sweep_values import sweep_values

_DECIDING = ("privacy", "schedule", "strategy", "acquisition")  # what a plan depends on
_SAME_NOISE = 0.97
_COLUMNS = ("noise", "steps", "found", "labels", "epsilon")

Rows = Sequence[Mapping[str, Any]]
T = TypeVar("T")


def parse_sweep(config: CampaignConfig, text: str) -> tuple[str, list[Any]]:
    """Reads KEY=START:STOP:STEP (both ends included) or KEY=a,b,c.

    Raises:
      ConfigError: it is neither, has too many values, or no plan depends on the setting.
    """
    key, values = sweep_values(text)
    _require_deciding(config, key, values[0])
    return key, values


def _require_deciding(config: CampaignConfig, key: str, value: object) -> None:
    """Refuses settings that are unknown, or that no plan depends on."""
    values: Any = config.model_dump(mode="json")
    found = values
    for name in key.split("."):
        found = found.get(name, values) if isinstance(found, dict) else values
    if found is values:  # unknown: the parser knows the nearest one
        override(values, key, value)
        parse_config(values)
    if isinstance(found, dict):
        raise ConfigError(f"{key} is a section; sweep one of its settings: {', '.join(found)}")
    if key.split(".")[0] not in _DECIDING:
        raise ConfigError(
            f"{key} does not change the plan; sweep a setting of privacy or schedule, or "
            "strategy or acquisition"
        )


def swept(
    config: CampaignConfig,
    spec: CampaignSpec,
    plan: Callable[[CampaignConfig], CertifiedPlan],
    key: str,
    values: Sequence[Any],
) -> View:
    """Plans over the values of one setting.

    Args:
      config: what the person wrote.
      spec: the same as it stands without the sweep, for what is said of all rows.
      plan: plans as `dpal plan` and `dpal run` do, on the same data.
      key: the dotted name of the setting.
      values: it takes one after the other.
    """
    rows = [
        attempt({key: value}, partial(_plan_with, config, plan, key, value)).record()
        for value in _watched(values)
    ]
    table = Table(f"Plans over {key}", (key, *_COLUMNS), _cells(rows, (key,)))
    return View(
        record={**_promised(spec), "key": key, "rows": rows},
        tables=(table,),
        words=_notes(rows, (key,)),
        figures={
            f"sweep-{key}.png": lambda: sweep_figure(key, rows, promise_words(spec, swept=key))
        },
    )


def compared(spec: CampaignSpec) -> View:
    """Every strategy with every way to select."""
    rows = [consider(setting, wish).record() for setting, wish in _watched(list(variants(spec)))]
    varied = ("strategy", "selection")
    table = Table("Strategies and ways to select", (*varied, *_COLUMNS), _cells(rows, varied))
    return View(
        record={**_promised(spec), "rows": rows},
        tables=(table,),
        words=_notes(rows, varied),
        figures={"comparison.png": lambda: comparison_figure(rows, promise_words(spec))},
    )


def _plan_with(
    config: CampaignConfig,
    plan: Callable[[CampaignConfig], CertifiedPlan],
    key: str,
    value: object,
) -> CertifiedPlan:
    values = config.model_dump(mode="json")
    override(values, key, value)
    return plan(parse_config(values))


def _watched(ways: Sequence[T]) -> Iterable[T]:
    """The same, under a bar on stderr where somebody watches."""
    bar: Iterable[T] = tqdm(ways, desc="planning", unit="plan", disable=None, leave=False)
    return bar


def _cells(rows: Rows, varied: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    cells = []
    for row in rows:
        names = [_word(row[name]) for name in varied]
        if row["planned"]:
            names += [
                _span(row["noise_multiplier"]),
                f"{row['total_steps']:,}",
                _precision(row),
                f"{row['expected_labels']:,}",
                f"{row['worst_epsilon']:.4f}",
            ]
        else:
            names += ["no plan", *["-"] * (len(_COLUMNS) - 1)]
        cells.append(tuple(names))
    return tuple(cells)


def _notes(rows: Rows, varied: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Why some rows have no plan, every reason once, and what the columns mean."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not row["planned"]:
            what = ", ".join(f"{name} {_word(row[name])}" for name in varied)
            reasons.setdefault(row["reason"], []).append(what)
    notes = [
        (
            "",
            "Noise is that of phase 0, and the least where later phases have clearly less. "
            "Found: share of the selected expected among as many highest-scored of the pool "
            "(and by chance), over all queries; ? where it depends on the scores. Labels: about as "
            "many are bought.",
        )
    ]
    for reason, where in reasons.items():
        notes.append(("", f"no plan for {'; '.join(where)}: {reason}"))
    return tuple(notes)


def _promised(spec: CampaignSpec) -> dict[str, Any]:
    target = spec.target
    return {
        "name": spec.name,
        "target_epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": spec.accountant.value,
        "pool_size": spec.pool_size,
    }


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _span(noise: Sequence[float]) -> str:
    # Of one noise, phases differ by the rounding of steps; noise reduction goes far below.
    first, least = noise[0], min(noise)
    return f"{first:.2f}-{least:.2f}" if least < _SAME_NOISE * first else f"{first:.3f}"


def _precision(row: Mapping[str, Any]) -> str:
    found, chance = row["expected_precision"], row["precision_by_chance"]
    if chance is None:
        return "-"
    return f"{'?' if found is None else f'{found:.0%}'} ({chance:.1%})"
