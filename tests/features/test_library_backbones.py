"""What is said where a library is not there, or does not fit the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError, DataError
from dpal.features.library_backbones import TIMM
from tests.conftest import small_values
from tests.features.library_models import spec_of


def test_a_library_that_is_not_installed_is_asked_for(tmp_path, monkeypatch):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(DataError, match=r"dpal\[timm\]"):
        spec_of("timm", weights, variant="test_vit.r160_in1k")


def test_one_that_does_not_fit_torch_is_another_matter(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator is not there')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(DataError, match="torchvision"):
        TIMM.library("timm")


@pytest.mark.parametrize(
    "backbone",
    [
        {"model": "timm"},
        {"model": "resnet50", "variant": "resnet50"},
        {"model": "transformers_text", "side": 32},
        {"model": "resnet50", "side": 32},
        {"model": "timm", "variant": "vit_base_patch16_224", "side": 0},
        {"model": "transformers"},
    ],
)
def test_settings_that_do_not_go_together_are_refused(backbone):
    values = small_values(
        data__extractor="backbone", data__backbone={"weights": str(Path("w")), **backbone}
    )
    with pytest.raises(ConfigError):
        parse_config(values)
