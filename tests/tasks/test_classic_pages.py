"""MLflow's own page, as it is installed, opens for training models on a first visit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import mlflow
from starlette.responses import Response

from tasks.tracking.classic_pages import SCRIPT, ClassicPages

BUILT = Path(mlflow.__file__).parent / "server" / "js" / "build"


async def mlflow_page(scope, receive, send):
    """What MLflow sends for its address."""
    await Response((BUILT / "index.html").read_bytes(), media_type="text/html")(
        scope, receive, send
    )


def asked(path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=ClassicPages(mlflow_page))
        async with httpx.AsyncClient(transport=transport, base_url="http://mlflow") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_the_page_asks_for_our_script_before_its_own():
    page, own = asked("/").text, (BUILT / "index.html").read_text()
    assert page.index(SCRIPT) < page.index("static/js/main.")
    assert page.replace(f'<script src=".{SCRIPT}"></script>', "") == own
    assert asked("/elsewhere").text == own


def test_the_script_sets_what_the_installed_page_reads():
    script = asked(SCRIPT)
    assert script.headers["content-type"].startswith("text/javascript")
    key, _, version = "mlflow.workflowType_v1".rpartition("_v")
    assert f"'{key}_v{version}'" in script.text
    (code,) = (BUILT / "static" / "js").glob("main.*.js")
    assert f'key:"{key}",version:{version},' in code.read_text()
