"""A plan made anew on another processor is the same plan, so a campaign can continue there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLAN = """
from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.certify_campaign import certified_plan
from tests.planning.specs import campaign
sizes = dict(pool_size=10_000, initial=600, queries=(300, 300), batch_size=200, epochs=4)
print(certified_plan(campaign(**sizes, delta=1e-5, selection=SelectionMode.VISIBLE)).plan.digest)
"""


def digest(**environment: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", PLAN],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


def test_without_the_widest_instructions():
    """Sums differ in last digits then; plans are rounded to the private side of them."""
    narrow = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    assert digest() == digest(NPY_DISABLE_CPU_FEATURES=narrow)
