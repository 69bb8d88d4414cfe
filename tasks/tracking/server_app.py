"""MLflow's server with its doors closed and accounts by role: `mlflow server --app-name dpal`.

MLflow's own middleware answers every page of this machine, whatever port it is from; and its
permissions let whoever makes something delete it, and every account make something.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tasks.tracking.classic_pages import ClassicPages
from tasks.web_guard import WebGuard, content_policy, own_origins

ADMIN, WORKER, READER = "dpal-admin", "dpal-worker", "dpal-reader"
EARLIER = "dpal"  # of stacks that an earlier version started; works like a worker now

# Parts of MLflow that run commands, call hosts outside or send statistics: nothing of ours.
_CLOSED = (
    "/gateway/",
    "/ajax-api/2.0/mlflow/gateway-proxy",
    "/ajax-api/3.0/mlflow/assistant",
    "/ajax-api/3.0/mlflow/demo",
    "/ajax-api/3.0/mlflow/gateway",
    "/ajax-api/3.0/mlflow/genai",
    "/ajax-api/3.0/mlflow/jobs",
    "/ajax-api/3.0/mlflow/scorer/",
    "/ajax-api/3.0/mlflow/ui-telemetry",
)
_API = r"/(ajax-)?api/\d\.\d/mlflow"
_READS = re.compile(rf"{_API}/[\w-]+/(search|search-datasets|get-history-bulk)|/graphql")
# All that logging runs and registering models takes.
_WRITES = re.compile(
    rf"{_API}/("
    r"experiments/(create|set-experiment-tag)|"
    r"runs/(create|update|log-\w+(-\w+)*|set-tag|delete-tag|outputs)|"
    r"registered-models/(create|update|set-tag|delete-tag|alias|get-latest-versions)|"
    r"model-versions/(create|update|set-tag|delete-tag)|"
    r"logged-models(/[\w-]+)?(/params|/tags)?)"
    r"|/(ajax-)?api/2\.0/mlflow-artifacts/(artifacts|mpu)/.+"
)
_SOURCES = r"^(models:/|runs:/|mlflow-artifacts:/(?!/)|dummy-source$|prompt-template$)"
_KEPT = re.compile(rf"{_API}/logged-models/[^/]+|/(ajax-)?api/2\.0/mlflow-artifacts/.+")


def create_app() -> ASGIApp:
    """MLflow's application with basic authentication, for its own pages and for programs."""
    from mlflow.server.auth import create_app as create_mlflow

    # Models of this server alone: files elsewhere are read with the server's rights, for anybody.
    os.environ.setdefault("MLFLOW_CREATE_MODEL_VERSION_SOURCE_VALIDATION_REGEX", _SOURCES)
    origins = own_origins()
    # Its charts are drawn by code that is made as they are drawn (plotly.js).
    policy = content_policy(script_src="'unsafe-eval'", frame_src="blob: data:")
    app = ClassicPages(AccountsByRole(create_mlflow()))
    return WebGuard(app, origins=origins, policy=policy, closed=_CLOSED)


class AccountsByRole:
    """Wraps MLflow: the accounts that workers and readers share may do what they are for.

    Whether the password is right is MLflow's own question, and so is what other accounts may.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or has MLflow answer it."""
        if scope["type"] == "http":
            try:
                name = requesting_user(Headers(scope=scope).getlist("authorization"))
            except ValueError:
                await PlainTextResponse("who asks is not clear\n", 400)(scope, receive, send)
                return
            if not is_allowed(name, scope["method"], scope["path"]):
                said = f"{name} may not do this; log in as {ADMIN}\n"
                await PlainTextResponse(said, 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_allowed(account: str, method: str, path: str) -> bool:
    """Whether an account that is shared by many may make a request.

    >>> may(WORKER, "POST", "/api/2.0/mlflow/runs/log-batch")
    True
    >>> may(WORKER, "POST", "/api/2.0/mlflow/runs/delete")
    False
    """
    if account not in (WORKER, EARLIER, READER) or method in ("GET", "HEAD", "OPTIONS"):
        return True
    if _READS.fullmatch(path):
        return True
    deletes = method == "DELETE" and _KEPT.fullmatch(path) is not None
    return account != READER and not deletes and _WRITES.fullmatch(path) is not None


def requesting_user(authorization: Sequence[str]) -> str:
    """Who a request is from, as MLflow will understand it, too; empty where it does not say.

    Args:
      authorization: the headers of that name.

    Raises:
      ValueError: there are several, or they could be read in another way.
    """
    if not authorization:
        return ""
    (given,) = authorization  # several are joined by MLflow, and are another name then
    scheme, credentials = given.split(" ")
    if scheme.lower() != "basic":
        raise ValueError(scheme)
    name, _, _ = base64.b64decode(credentials, validate=True).decode().partition(":")
    return name
