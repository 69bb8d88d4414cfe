"""Label Studio as a labeler: its connection, and where its token is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from dpal.errors import LabelStudioError
from dpal.files.artifacts import PhaseFolder
from dpal.labeling.label_studio import LabelStudioLabeler
from dpal.labeling.label_studio_api import LabelStudio
from dpal.runs.host import host
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.suggested_labels import suggested_labels

TOKEN = "LABEL_STUDIO_API_KEY"  # noqa: S105  where it is, not what it is
TOKEN_BLOCK = "dpal-label-studio-token"  # noqa: S105
HOOK_SECRET = "DPAL_COLLECT_SECRET"  # noqa: S105
HOOK_HEADER = "X-Dpal-Secret"


@contextmanager
def opened_label_studio(asked: LabelingJob, files: PhaseFolder) -> Iterator[LabelStudioLabeler]:
    """The labeler that asks people in Label Studio, with a connection for the block.

    Raises:
      LabelStudioError: its token is nowhere.
    """
    settings = asked.config.labeler.label_studio
    secret = os.environ.get(HOOK_SECRET)
    server = LabelStudio(settings.url, label_studio_token(settings.url))
    try:
        yield LabelStudioLabeler(
            source=asked.pool,
            question=asked.question,
            rules=settings.to_rules(),
            server=server,
            title=f"{settings.title or asked.config.name[:30]}, {files.root.name}",
            folder=files.query,
            delivered=files.labels,
            command=f"dpal label {asked.folder.root}",
            suggest=partial(suggested_labels, asked),
            # Without a secret nothing would be taken from it; labels are noticed in a minute.
            webhook=(settings.webhook, {HOOK_HEADER: secret})
            if settings.webhook and secret
            else None,
        )
    finally:
        server.close()


def label_studio_token(url: str) -> str:
    """The token for Label Studio: from the environment, or from the secrets of an orchestrator.

    Raises:
      LabelStudioError: it is in neither.
    """
    if token := os.environ.get(TOKEN) or host().secret(TOKEN_BLOCK):
        return token
    raise LabelStudioError(
        url,
        "needs a token, and none is set",
        f"put it into the environment variable {TOKEN} or the Prefect Secret block {TOKEN_BLOCK}",
    )
