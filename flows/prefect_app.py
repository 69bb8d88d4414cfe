"""Prefect's server with its doors closed: for `uvicorn --factory flows.prefect_app:create_app`.

What its own settings can close is set here as well; the rest is `tasks.web_guard`.
"""

from __future__ import annotations

import os
from pathlib import Path

from starlette.types import ASGIApp

from dpal.errors import ConfigError
from tasks.web_guard import WebGuard, content_policy, own_origins

# Pages of FastAPI that load their scripts from a host outside.
_CLOSED = ("/docs", "/redoc", "/openapi.json", "/api/docs", "/api/redoc")
# Its graphs of runs are drawn by code that is made as they are drawn (pixi.js).
_POLICY = content_policy(script_src="'unsafe-eval'", connect_src="data: blob:")


def create_app() -> ASGIApp:
    """Prefect's application, for its own pages and for programs that know the password.

    Raises:
      ConfigError: no password is set, or not where its pages are.
    """
    if not os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
        raise ConfigError(
            "PREFECT_SERVER_API_AUTH_STRING is not set, and without a password anybody could start "
            "runs; set it to NAME:PASSWORD, and PREFECT_API_AUTH_STRING likewise for workers"
        )
    origins = own_origins()
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(origins)
    os.environ["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] = "true"
    os.environ["PREFECT_SERVER_UI_V2_ENABLED"] = "false"
    os.environ.setdefault("PREFECT_SERVER_UI_API_URL", "/api")
    os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

    import prefect
    from prefect.server.api.server import create_app as create_prefect

    # The newer pages ask an analytics host for settings, and no setting of 3.8 takes them away:
    # they are offered where their files are.
    prefect.__ui_v2_static_path__ = Path(os.devnull) / "not-offered"
    return WebGuard(create_prefect(final=True), origins=origins, policy=_POLICY, closed=_CLOSED)
