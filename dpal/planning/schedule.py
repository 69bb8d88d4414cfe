"""The base schedule: steps and rates as if every labeled record were treated alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpal.accounting.events import Event, NoisyStatistics, PhaseExposure
from dpal.planning.campaign_spec import CampaignSpec, Schedule


@dataclass(frozen=True, kw_only=True)
class BasePhase:
    """One phase before noise is chosen.

    Attributes:
      cohort_size: records added in the phase.
      labeled: records labeled at its end.
      steps: T_i = epochs * floor(labeled / batch_size), at least one step per epoch.
      sample_rate: q_i = batch_size / labeled, at most 1.
      statistics: whether it fits a head, in one step on all new records and on no other.
    """

    cohort_size: int
    labeled: int
    steps: int
    sample_rate: float
    statistics: bool = False

    def exposure(self, noise_multiplier: float) -> Event:
        """What one labeled record is exposed to at this noise."""
        if self.statistics:
            return NoisyStatistics(noise_multiplier=noise_multiplier)
        return PhaseExposure(
            steps=self.steps, sample_rate=self.sample_rate, noise_multiplier=noise_multiplier
        )


def trial_phase(schedule: Schedule, epochs: int) -> BasePhase:
    """How one trial of a search trains: as phase 0 does, for so many passes."""
    once = replace(schedule, queries=(), epochs_per_phase=epochs)
    return base_phases(once)[0]


def scheduled_phases(spec: CampaignSpec) -> tuple[BasePhase, ...]:
    """Lays out the phases of a campaign, as if every labeled record were treated alike.

    A phase that fits a head is one step, whatever batch and passes the schedule names.
    """
    trained = base_phases(spec.schedule)
    if spec.head is None:
        return trained
    return tuple(replace(phase, steps=1, sample_rate=1.0, statistics=True) for phase in trained)


def base_phases(schedule: Schedule) -> tuple[BasePhase, ...]:
    """Lays out the phases of a schedule (Schwethelm et al. 2025, Sec. 4.1)."""
    phases = []
    labeled = 0
    for size in schedule.cohort_sizes:
        labeled += size
        steps_per_epoch = max(1, labeled // schedule.batch_size)
        phases.append(
            BasePhase(
                cohort_size=size,
                labeled=labeled,
                steps=schedule.epochs_per_phase * steps_per_epoch,
                sample_rate=min(1.0, schedule.batch_size / labeled),
            )
        )
    return tuple(phases)
