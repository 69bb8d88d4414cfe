"""`dpal run --on`: gives a run to the workers of a deployment."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpal.config.campaign import override
from dpal.errors import ConfigError
from dpal.runs.kinds import KINDS, kind_of, parse_any
from flows.cli.read_settings import read_values
from flows.cli.terminal import err, parse_setting

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


def run_on_deployment(name: str, file: Path | None, settings: list[str]) -> None:
    """Starts a run on the server of PREFECT_API_URL; prints the address of its page.

    Args:
      name: of the deployment, with its flow (campaign/clinic) or without.
      file: settings, with paths as they are on the workers; None for the deployment's own.
      settings: overrides, KEY=VALUE.

    Raises:
      ConfigError: the settings are wrong, or of another kind than the deployment runs.
      DeployError: the server does not answer.
    """
    err.print("asking Prefect ...", style="dim")
    from prefect.states import Scheduled
    from prefect.utilities.urls import url_for

    from flows.ops.deployments import shown_parameters
    from flows.ops.prefect_connection import prefect_server

    with prefect_server() as client:
        deployment, flow = _found(client, name)
        values: dict[str, Any] = deepcopy(dict(deployment.parameters.get("config") or {}))
        if file is not None:
            values = read_values(file)
        for text in settings:
            override(values, *parse_setting(text))
        config = parse_any(values)
        if kind_of(config).name != flow:
            raise ConfigError(
                f"deployment {flow}/{deployment.name} runs kind {flow}, and these settings are of "
                f"kind {kind_of(config).name}; name another deployment"
            )
        run = client.create_flow_run_from_deployment(
            deployment.id,
            parameters=shown_parameters(config),
            state=Scheduled(),
            name=config.name,
        )
    print(url_for(run) or run.id)  # noqa: T201  plain, for scripts


def _found(client: SyncPrefectClient, name: str) -> tuple[DeploymentResponse, str]:
    """A deployment that runs settings, and the name of its flow."""
    from prefect.client.schemas.filters import (
        DeploymentFilter,
        DeploymentFilterName,
        FlowFilter,
        FlowFilterName,
    )

    flow, _, short = name.rpartition("/")
    wanted = FlowFilter(name=FlowFilterName(any_=[flow] if flow in KINDS else list(KINDS)))
    flows = {known.id: known.name for known in client.read_flows(flow_filter=wanted)}
    named = DeploymentFilter(name=DeploymentFilterName(any_=[short]))
    found = [
        (known, flows[known.flow_id])
        for known in client.read_deployments(flow_filter=wanted, deployment_filter=named)
        if flow in ("", flows[known.flow_id])
    ]
    if len(found) != 1:
        every = client.read_deployments(flow_filter=wanted)
        listed = sorted(f"{flows[known.flow_id]}/{known.name}" for known in every)
        raise ConfigError(
            f"the server has {len(found) or 'no'} deployments {name} that run settings; name one "
            f"of {', '.join(listed)}"
            if listed
            else f"the server has no deployment {name}; make it with: dpal deploy FILE"
        )
    return found[0]
