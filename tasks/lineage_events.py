"""Events in the words of OpenLineage; imported only where its library is installed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import attr
from openlineage.client import OpenLineageClient as OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    dataset_version_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    parent_run,
)

import dpal
from dpal.runs.lineage_facts import LineageFile

PROMISE = "dpal_promise"
# An address that nobody asks: what it names is docs/lineage-promise.json.
PROMISE_SCHEMA = "urn:x-dpal:lineage-promise:1"
PRODUCER = f"urn:x-dpal:producer:{dpal.__version__}"


@attr.define
class PromiseRunFacet(RunFacet):
    """What a run promised to each unit of its private records.

    Attributes:
      epsilon: promised, at `delta`, `adjacency` and `unit`.
      certifiedEpsilon: what its plan adds up to by `accountant`, in the worst case.
      plan: digest of the plan that the ledger holds.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    accountant: str
    certifiedEpsilon: float  # noqa: N815  the spelling of OpenLineage
    plan: str

    @staticmethod
    def _get_schema() -> str:
        return PROMISE_SCHEMA


@attr.define(kw_only=True)
class Execution:
    """A flow run that carries out a run of dpal, as lineage knows it.

    Attributes:
      namespace: of its job.
      kind: of the run.
      name: of the run.
      about: what runs of this kind do.
      flow: name of the flow.
      flow_run: that flow run's id.
      promise: what `dpal.runs.lineage_facts.promise_facts` says.
    """

    namespace: str
    kind: str
    name: str
    about: str
    flow: str
    flow_run: str
    promise: dict[str, Any]

    def event(
        self,
        state: str,
        *,
        day: str,
        step: int,
        read: Iterable[LineageFile],
        made: Iterable[LineageFile],
        why: str = "",
    ) -> RunEvent:
        """An event of this execution.

        Args:
          state: START, RUNNING, COMPLETE, FAIL or ABORT.
          day: that the event carries: that of the plan, as a time tells how many were selected.
          step: number of the event in the order of all, which is seconds after noon.
          read: by the run so far.
          made: by the run so far.
          why: it failed, in public words.
        """
        set_producer(PRODUCER)
        noon = datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=UTC)
        return RunEvent(
            eventType=RunState(state),
            eventTime=(noon + timedelta(seconds=step)).isoformat(),
            producer=PRODUCER,
            run=Run(runId=self.run_id, facets=self._run_facets(why)),
            job=Job(self.namespace, f"{self.kind}.{self.name}", facets=self._job_facets()),
            inputs=[InputDataset(file.namespace, file.name, facets=_facets(file)) for file in read],
            outputs=[
                OutputDataset(file.namespace, file.name, facets=_facets(file)) for file in made
            ],
        )

    @property
    def run_id(self) -> str:
        """One for a flow run and what it runs, also after it was suspended and resumed."""
        return str(uuid5(UUID(self.flow_run), f"{self.kind}/{self.name}"))

    def _run_facets(self, why: str) -> dict[str, RunFacet]:
        facets: dict[str, RunFacet] = {
            PROMISE: PromiseRunFacet(**self.promise),
            "parent": parent_run.ParentRunFacet(
                run=parent_run.Run(runId=self.flow_run),
                job=parent_run.Job(namespace=self.namespace, name=self.flow),
            ),
        }
        if why:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(why, "python")
        return facets

    def _job_facets(self) -> dict[str, JobFacet]:
        return {
            "jobType": job_type_job.JobTypeJobFacet("BATCH", "DPAL", jobType=self.kind.upper()),
            "documentation": documentation_job.DocumentationJobFacet(self.about),
        }


def _facets(file: LineageFile) -> dict[str, Any]:
    if not file.digest:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(file.digest)}
