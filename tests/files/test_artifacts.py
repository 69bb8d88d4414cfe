"""Manifests that were altered are damaged files, not programming errors."""

from __future__ import annotations

import pytest

from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder


@pytest.mark.parametrize("content", ["{}", "[]", '{"files": 3, "ledger_head": "x"}', "{", ""])
def test_an_altered_manifest_is_named(tmp_path, content):
    phase = CampaignFolder(tmp_path).phase(0)
    phase.root.mkdir()
    phase.manifest.write_text(content)
    for read in (phase.read_manifest, phase.ledger_head):
        with pytest.raises(DataError, match=r"manifest\.json is missing"):
            read()
