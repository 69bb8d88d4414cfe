"""What `dpal plan` shows of a campaign: its plan, why it is so, others, and the published one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dpal.config.campaign import AcquisitionWish, CampaignConfig, override, parse_config
from dpal.config.runtime import RunConfig
from dpal.errors import ConfigError, DpalError
from dpal.models.build_model import trainable_weights
from dpal.planning.alternatives import attempt, consider, variants
from dpal.planning.campaign_plan import CertifiedPlan, Plan
from dpal.planning.campaign_spec import CampaignSpec, Strategy
from dpal.planning.epsilon_timeline import timeline
from dpal.planning.explain_campaign import explain_campaign
from dpal.planning.paper_plan import PublishedSchedule, published_schedule
from dpal.planning.plan_doubts import plan_doubts
from dpal.reports.plain_language import acquisition_chosen
from dpal.reports.plan_and_phase_tables import (
    above_the_promise,
    cohort_table,
    figures_in_plan,
    other_strategy,
    plan_table,
    promises,
    shared_promise,
    shares_table,
)
from dpal.reports.rehearsed_figures import expected_figures_table, expected_words
from dpal.reports.report import Table
from dpal.reports.search_table import search_in_plan
from dpal.runs.kinds import campaign_of
from dpal.runs.plan_new_campaign import CampaignStart, find_participants, plan_for
from dpal.runs.prepare_campaign import OpenedData, open_data, plan_opened
from dpal.runs.rehearsed_plan import rehearse_start
from dpal.runs.store_sync import require_store_for_workers
from flows.cli.plan_view import PlanView, RunPlanViews, with_progress_bar
from flows.cli.sweep_values import sweep_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DECIDING = (
    "privacy",
    "schedule",
    "self_training",
    "strategy",
    "acquisition",
)  # what a plan depends on
_SAME_NOISE = 0.97
_COLUMNS = ("noise", "steps", "found", "labels", "epsilon")

Rows = Sequence[Mapping[str, Any]]


class CampaignPlanViews(RunPlanViews):
    """The same for a campaign, in its own figures, and the published schedule beside it."""

    def plan(self, config: RunConfig, *, explained: bool, rehearsed: bool = False) -> PlanView:
        """The certified plan, and what rehearsals on public records say that it would reach."""
        campaign = campaign_of(config)
        require_store_for_workers(campaign.runtime)
        opened = open_data(campaign)
        start = plan_opened(campaign, opened)
        view = certified_view(
            start.certified,
            asked=campaign.strategy,
            explained=explained,
            remarks=opened.remarks,
            choice=start.choice,
        )
        return _with_rehearsal(view, campaign, opened, start) if rehearsed else view

    def sweep(self, config: RunConfig, text: str) -> PlanView:
        """Plans over the values of one setting, on the same data."""
        campaign = campaign_of(config)
        require_store_for_workers(campaign.runtime)
        key, values = _parse_sweep(campaign, text)
        opened = open_data(campaign)
        return _swept(campaign, opened.spec, _planner(campaign, opened), key, values)

    def compare(self, config: RunConfig) -> PlanView:
        """Every strategy with every way to select."""
        campaign = campaign_of(config)
        require_store_for_workers(campaign.runtime)
        return _compared(open_data(campaign).spec)

    def published(self, config: RunConfig) -> PlanView:
        """The published schedule for the same settings, and what it would really spend."""
        return published_view(open_data(campaign_of(config)).spec)


VIEWS = CampaignPlanViews()


def _planner(
    config: CampaignConfig, opened: OpenedData
) -> Callable[[CampaignConfig], CertifiedPlan]:
    """Plans as `dpal run` does, with whatever settings, on data that was looked at once."""
    participants = find_participants(config, opened.pool, opened.owners)

    def certified(wishes: CampaignConfig) -> CertifiedPlan:
        return plan_for(participants, opened.spec_of(wishes)).certified

    return certified


def certified_view(
    certified: CertifiedPlan,
    *,
    asked: Strategy,
    explained: bool,
    remarks: Sequence[str] = (),
    choice: Mapping[str, Any] | None = None,
) -> PlanView:
    """The certified plan of a campaign.

    Args:
      certified: the plan.
      asked: the strategy that was asked for; the plan's is another where only that one certifies.
      explained: whether to say why it has its numbers.
      remarks: what is remarkable about its data.
      choice: how public records chose the acquisition; None where the settings named it.
    """
    spec, summary = certified.plan.spec, certified.summary()
    closing = (
        f"certified: {certified.epsilon:.4f} of {spec.target.epsilon:g}, for any "
        f"{spec.target.unit} on whatever path (accountant {spec.accountant})"
    )
    words = [("", closing)]
    above = above_the_promise(summary["cohorts"], summary, whole=certified.epsilon)
    if above and not explained:  # an explanation says it at greater length
        words.append(("", above))
    if "validation" in summary:
        words.append(("", figures_in_plan(summary)))
    if "search" in summary:
        words.append(("", search_in_plan(summary)))
    if spec.strategy is not asked:
        words.append(("", other_strategy(spec.strategy, asked)))
    if choice is not None:
        words.append(("", acquisition_chosen(choice)))
        summary |= {"acquisition_wish": AcquisitionWish.AUTO.value, "acquisition_choice": choice}
    remarks = [*remarks, *plan_doubts(certified.plan, weights=trainable_weights(spec.model))]
    words += [("", f"note: {remark}") for remark in remarks]
    if remarks:
        summary["remarks"] = list(remarks)
    if explained:
        explanation = explain_campaign(certified)
        summary["explanation"] = [asdict(remark) for remark in explanation]
        words += [(remark.topic, remark.text) for remark in explanation]
    return PlanView(
        record=summary,
        tables=(
            plan_table(summary),
            cohort_table(summary),
            *([shares_table(summary)] if spec.blocks else []),
        ),
        words=tuple(words),
        figures=_plan_figures(certified.plan),
    )


def _with_rehearsal(
    view: PlanView, config: CampaignConfig, opened: OpenedData, start: CampaignStart
) -> PlanView:
    """The plan and what can be expected of it, or why it cannot be rehearsed."""
    try:
        expected = rehearse_start(config, opened.validation, start)
    except DpalError as why:
        return replace(
            view,
            record={**view.record, "expected": None, "not_rehearsed": str(why)},
            words=(*view.words, ("", f"no rehearsal: {why}")),
        )
    return replace(
        view,
        record={**view.record, "expected": expected.as_record()},
        tables=(*view.tables, expected_figures_table(expected)),
        words=(*view.words, *(("", sentence) for sentence in expected_words(expected))),
    )


def published_view(spec: CampaignSpec) -> PlanView:
    """The published schedule for the same settings, and what it would really spend."""
    schedule = published_schedule(spec)
    summary, plan = schedule.summary(), schedule.plan
    marked = replace(plan, spec=replace(plan.spec, name=f"{spec.name} AS PUBLISHED, NOT CERTIFIED"))
    return PlanView(
        record=summary,
        tables=(
            replace(plan_table(summary), title="Published schedule, NOT CERTIFIED"),
            replace(cohort_table(summary), title="What it would really spend"),
        ),
        words=(("Not certified, and never run by dpal", _verdict(schedule)),),
        figures={f"published-{name}": draw for name, draw in _plan_figures(marked).items()},
    )


def _verdict(schedule: PublishedSchedule) -> str:
    spec = schedule.plan.spec
    promised, clip = spec.target.epsilon, spec.optimizer.max_grad_norm
    sentences = [
        "This is what the published code plans for these settings: one noise multiplier by Rényi "
        "bounds, rates of one over the whole number of batches, epsilons equalised after every "
        "phase.",
        f"By its own accountant a {spec.target.unit} ends at {schedule.epsilon_rdp:.4f}, "
        + (
            f"within the promised {promised:g}."
            if schedule.keeps_its_promise
            else f"above the promised {promised:g}: epsilons do not add up, and nothing checks "
            "where cohorts end."
        ),
        f"Tight accounting over all paths finds {schedule.epsilon_pld:.4f}"
        + (
            "; the slack of the bounds, not the plan, keeps the promise."
            if schedule.epsilon_pld <= promised < schedule.epsilon_rdp
            else "."
        ),
    ]
    if clip != 1:
        sentences.append(
            f"As run it would come to {schedule.epsilon_as_run:.4f}: with "
            f"training.max_grad_norm {clip:g} the published code divides the noise of phase 0 "
            f"by {clip:g}."
        )
    sentences.append("No setting asks for this schedule; see what dpal plans: dpal plan FILE.")
    return " ".join(sentences)


def _plan_figures(plan: Plan) -> dict[str, Callable[[], Figure]]:
    def drawn(name: str) -> Figure:
        from dpal.reports.plots.plan import cohorts_figure, schedule_figure, spending_figure

        if name == "schedule.png":
            return schedule_figure(plan)
        draw = spending_figure if name == "budget-by-release.png" else cohorts_figure
        return draw(plan, timeline(plan))

    names = ("budget-by-release.png", "budget-by-cohort.png", "schedule.png")
    return {name: partial(drawn, name) for name in names}


def _parse_sweep(config: CampaignConfig, text: str) -> tuple[str, list[Any]]:
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
    setting = values
    for name in key.split("."):
        setting = setting.get(name, values) if isinstance(setting, dict) else values
    if setting is values:  # unknown: the parser knows the nearest one
        override(values, key, value)
        parse_config(values)
    if isinstance(setting, dict):
        raise ConfigError(f"{key} is a section; sweep one of its settings: {', '.join(setting)}")
    if key.split(".")[0] not in _DECIDING:
        raise ConfigError(
            f"{key} does not change the plan; sweep a setting of privacy, schedule or "
            "self_training, or strategy or acquisition"
        )


def _swept(
    config: CampaignConfig,
    spec: CampaignSpec,
    plan: Callable[[CampaignConfig], CertifiedPlan],
    key: str,
    values: Sequence[Any],
) -> PlanView:
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
        for value in with_progress_bar(values)
    ]

    def drawn() -> Figure:
        from dpal.reports.plots.alternatives import plan_sweep_figure

        return plan_sweep_figure(key, rows, shared_promise(planned) if planned else "no plan")

    planned = [row for row in rows if row["planned"]]
    promised = (("", promises(planned)),) if planned else ()
    table = Table(f"Plans over {key}", (key, *_COLUMNS), _cells(rows, (key,)))
    return PlanView(
        record={**_promised(spec), "key": key, "rows": rows},
        tables=(table,),
        words=(*promised, *_notes(rows, (key,))),
        figures={f"sweep-{key}.png": drawn},
    )


def _compared(spec: CampaignSpec) -> PlanView:
    """Every strategy with every way to select."""
    rows = [
        consider(setting, wish).record()
        for setting, wish in with_progress_bar(list(variants(spec)))
    ]

    def drawn() -> Figure:
        from dpal.reports.plots.alternatives import comparison_figure
        from dpal.reports.plots.plan import promise_words

        return comparison_figure(rows, promise_words(spec))

    varied = ("strategy", "selection")
    table = Table("Strategies and ways to select", (*varied, *_COLUMNS), _cells(rows, varied))
    return PlanView(
        record={**_promised(spec), "rows": rows},
        tables=(table,),
        words=_notes(rows, varied),
        figures={"comparison.png": drawn},
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
    expected, chance = row["expected_precision"], row["precision_by_chance"]
    if chance is None:
        return "-"
    return f"{'?' if expected is None else f'{expected:.0%}'} ({chance:.1%})"
