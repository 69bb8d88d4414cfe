"""A plan made anew on another processor is the same plan, so a campaign can continue there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.certify_campaign import certified_plan
from tests.planning.specs import campaign

pytestmark = pytest.mark.slow

AGAIN = """
from tests.planning.test_same_elsewhere import digest
print(digest())
"""


def digest() -> str:
    """Of a plan that is made in this process."""
    spec = campaign(
        pool_size=10_000,
        initial=600,
        queries=(300, 300),
        batch_size=200,
        epochs=4,
        delta=1e-5,
        selection=SelectionMode.VISIBLE,
    )
    return certified_plan(spec).plan.digest


def test_without_the_widest_instructions():
    """Sums differ in last digits then; plans are rounded to the private side of them."""
    narrow = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    made = subprocess.run(
        [sys.executable, "-c", AGAIN],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": narrow},
        capture_output=True,
        text=True,
        check=True,
    )
    assert digest() == made.stdout.strip()
