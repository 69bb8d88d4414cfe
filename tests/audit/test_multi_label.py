from __future__ import annotations

from dataclasses import replace

import torch

from dpal import randomness
from dpal.audit.audit_campaign_plan import audit
from dpal.labels import Task
from tests.audit.auditing import EFFORT, campaign, failed, records
from tests.planning.specs import planned

LABELS = 4


def test_several_labels_are_audited_with_power(tmp_path):
    """Canaries and their opposites pull one label up and down, as far as clipping lets them."""
    spec = campaign(privacy__adjacency="replace_one", strategy="naive")
    model = replace(spec.model, classes=LABELS, task=Task.MULTI_LABEL)
    inputs, _ = records()
    labels = (inputs[:, :LABELS] > 1).to(torch.int8)
    report = audit(planned(replace(spec, model=model)), inputs, labels, effort=EFFORT,
                   scratch=tmp_path, fresh=randomness.secure)  # fmt: skip
    assert report.passed, failed(report)
    attacks = {one.what: one.value for one in report.findings if one.is_epsilon}
    [measured] = [value for what, value in attacks.items() if "gradients, as Gaussian" in what]
    assert measured is not None
    assert measured > 1
