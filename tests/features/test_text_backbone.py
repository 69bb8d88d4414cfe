"""What a public text model makes of texts, as fixed features: of each text by itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dpal.canonical import place_digest
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.features.extractors import build_extractor, text_encoding, text_feature_width
from dpal.features.spec import ExtractorKind, ExtractorSpec
from tests.models.tiny_bert import SIZES, model_of, write_folder

GOOD, BAD, LONG = "the film was good", "bad", "not very good . the film was a bad film"


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> ExtractorSpec:
    folder = write_folder(tmp_path_factory.mktemp("bert"))
    return ExtractorSpec(
        kind=ExtractorKind.BACKBONE,
        model="text_classifier",
        weights=str(folder),
        weights_digest=place_digest(folder),
    )


def features(spec: ExtractorSpec, *columns: list[str]) -> Tensor:
    names = ["text_a", "text_b"][: len(columns)]
    texts = pa.StructArray.from_arrays([pa.array(each) for each in columns], names)
    extractor = build_extractor(spec, Content.TEXT, texts=len(columns))
    assert extractor is not None
    return extractor(text_encoding(spec).encode(texts, rows=None)).float()


def test_features_are_the_mean_over_tokens(spec):
    found = features(spec, [GOOD])
    texts = pa.StructArray.from_arrays([pa.array([GOOD])], ["text_a"])
    records = text_encoding(spec).encode(texts, rows=None)
    assert records.shape[2] == SIZES["max_position_embeddings"]  # as many as it reads
    model = model_of(Path(str(spec.weights)), input_shape=(2, records.shape[2])).eval()
    tokens = int((records[0, 0] != 0).sum())
    assert tokens == 6  # with its first and last
    hidden = model.embeddings(*records[:, :, :tokens].long().unbind(1))
    for layer in model.encoder.layer:
        hidden = layer(hidden, hidden, torch.zeros(1, 1, 1, tokens))
    wanted = functional.layer_norm(hidden.mean(1), (SIZES["hidden_size"],)).detach()
    assert found == pytest.approx(wanted, abs=2e-3)  # halves


def test_a_text_has_the_same_features_in_any_company(spec):
    alone = features(spec, [GOOD])
    for others in ([BAD, GOOD, LONG], [LONG] * 70 + [GOOD], [GOOD] * 3):
        assert torch.equal(features(spec, others)[others.index(GOOD)], alone[0])
    assert not torch.equal(features(spec, [BAD])[0], alone[0])


def test_a_pair_is_two_texts_and_how_they_differ(spec):
    wide, width = features(spec, [GOOD, BAD], [BAD, BAD]), SIZES["hidden_size"]
    first, second, apart, agreeing = wide.split(width, dim=1)
    good, bad = features(spec, [GOOD, BAD])
    assert torch.equal(first, torch.stack([good, bad]))
    assert torch.equal(second, torch.stack([bad, bad]))
    # Halves are compared with what is made of halves.
    assert apart[0] == pytest.approx(functional.layer_norm((good - bad).abs(), (width,)), abs=0.05)
    assert agreeing[0] == pytest.approx(functional.layer_norm(good * bad, (width,)), abs=0.05)
    assert apart[1].abs().max() == 0
    assert wide.shape[1] == text_feature_width(Path(str(spec.weights)), 2)
    assert good.shape == (text_feature_width(Path(str(spec.weights)), 1),)


def test_no_texts_have_no_features(spec):
    assert features(spec, []).shape == (0, SIZES["hidden_size"])


def test_texts_and_images_are_not_confused(spec):
    with pytest.raises(DataError, match=r"texts.* images"):
        build_extractor(spec, Content.IMAGE)
    scattering = ExtractorSpec(kind=ExtractorKind.SCATTERING)
    with pytest.raises(DataError, match=r"images.* texts"):
        build_extractor(scattering, Content.TEXT)
