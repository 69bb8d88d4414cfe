"""Writing the certificate of a campaign."""

from __future__ import annotations

from dpal.runs import certify as use_case
from tasks.boundary import task

certify = task()(use_case.certify)
