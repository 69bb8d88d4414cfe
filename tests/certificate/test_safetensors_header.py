"""A model's file is opened, without torch: what is no model is not called one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file
from safetensors.torch import save as save_torch

from dpal.canonical import file_digest, plain
from dpal.certificate.safetensors_header import Weights, read_weights, shape_mismatch
from dpal.errors import CertificateError
from dpal.models.architectures import ARCHITECTURES
from dpal.models.spec import ModelSpec
from tests.models.checks import shapes_of, spec_of
from tests.models.tiny_bert import spec_of as text_spec
from tests.models.tiny_bert import write_folder

LOGISTIC = plain(ModelSpec(name="logistic", input_shape=(8,), classes=3))
TENSORS = {"1.weight": np.ones((3, 8), np.float32), "1.bias": np.zeros(3, np.float32)}


def parts(content: bytes) -> tuple[dict, bytes]:
    """The header and the bytes of the tensors."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def whole(header: dict | str, data: bytes) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


def changed(**tensor):
    """A true file whose header says something else of the first tensor."""

    def edit(content: bytes) -> bytes:
        header, data = parts(content)
        header["1.weight"] = {**header["1.weight"], **tensor}
        return whole(header, data)

    return edit


BROKEN = {
    "a short text": lambda content: b"these 34 bytes are no model at all",
    "nothing": lambda content: b"",
    "seven bytes": lambda content: content[:7],
    "the length alone": lambda content: content[:8],
    "a length beyond the file": lambda content: (10**6).to_bytes(8, "little") + content[8:],
    "a huge length": lambda content: b"\xff" * 8 + content[8:],
    "cut in the header": lambda content: content[:40],
    "cut in the tensors": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "no JSON": lambda content: whole("weights", parts(content)[1]),
    "a list": lambda content: whole("[]", b""),
    "no UTF-8": lambda content: (2).to_bytes(8, "little") + b"\xff\xfe",
    "a tensor twice": lambda content: whole(
        json.dumps(parts(content)[0])[:-1]
        + ', "1.bias": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}',
        parts(content)[1],
    ),
    "overlapping tensors": lambda content: whole(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        },
        bytes(12),
    ),
    "a gap": lambda content: whole(
        {
            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
        },
        bytes(12),
    ),
    "more than is there": changed(shape=[300, 8], data_offsets=[12, 9612]),
    "another shape than its place": changed(shape=[3, 9]),
    "a negative shape": changed(shape=[-3, -8]),
    "a shape of decimals": changed(shape=[3.0, 8.0]),
    "no such shape": changed(shape="3x8"),
    "places in the wrong order": changed(data_offsets=[108, 12]),
    "one place": changed(data_offsets=[12]),
    "an unknown type": changed(dtype="F31"),
    "a type that is a number": changed(dtype=32),
    "one more key": changed(audited=True),
    "metadata that are no texts": lambda content: whole(
        {**parts(content)[0], "__metadata__": {"epoch": 1}}, parts(content)[1]
    ),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_what_is_no_model_is_refused(path, change):
    path.write_bytes(change(save(TENSORS)))
    found = read_weights(path)
    assert found.parameters == 0
    assert "no safetensors file" in str(shape_mismatch(found, None))
    assert found.sha256 == file_digest(path)


@pytest.mark.parametrize(
    "tensors",
    [{}, {"a": np.zeros((0, 8), np.float32)}, {"step": np.array([3], np.int64)}],
    ids=["no tensor", "an empty tensor", "a counter alone"],
)
def test_a_file_without_parameters_is_no_model(path, tensors):
    save_file(tensors, path)
    assert shape_mismatch(read_weights(path), None) == "it holds no parameters"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_parameters_of_every_precision_are_counted(path, dtype):
    content = save_torch({"w": torch.zeros(5, 7, dtype=dtype), "steps": torch.tensor(3)})
    path.write_bytes(content)
    assert read_weights(path) == Weights(sha256=file_digest(path), shapes={"w": (5, 7)})
    assert read_weights(path).parameters == 35


def test_it_is_the_planned_model_as_far_as_shapes_tell(path):
    save_file(TENSORS, path)
    found = read_weights(path)
    assert shape_mismatch(found, LOGISTIC) is None
    assert "not the 30" in str(shape_mismatch(found, {**LOGISTIC, "input_shape": [9]}))
    assert "(logistic)" in str(shape_mismatch(found, {**LOGISTIC, "classes": 4}))
    mlp = plain(ModelSpec(name="mlp", input_shape=(8,), classes=3, hidden=(5,)))
    assert "not the 63" in str(shape_mismatch(found, mlp))
    other = {**LOGISTIC, "name": "resnet9", "classes": 10}
    assert "the 10 classes" in str(shape_mismatch(found, other))


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_architecture_is_known_as_itself_and_not_as_another(name, tmp_path):
    """Shapes alone, without any numbers."""
    shapes = {"logistic": (8,), "mlp": (8,)}
    spec = spec_of(
        name, shapes.get(name, (3, 32, 32)), **({"hidden": (4,)} if name == "mlp" else {})
    )
    if name == "text_classifier":
        spec = text_spec(write_folder(tmp_path))
    state = shapes_of(spec).state_dict()
    found = Weights(
        sha256="0" * 64,
        shapes={key: tuple(one.shape) for key, one in state.items() if one.is_floating_point()},
    )
    assert shape_mismatch(found, plain(spec)) is None
    assert shape_mismatch(found, {**plain(spec), "classes": spec.classes + 1}) is not None


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    with pytest.raises(CertificateError, match="cannot be read"):
        read_weights(tmp_path)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_what_we_take_for_a_model_is_one_for_safetensors_itself(tmp_path_factory, data):
    """A true file with some bytes changed: never accepted here and refused by the package."""
    content = bytearray(save(TENSORS, metadata={"format": "np"}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    path.write_bytes(bytes(content))
    if read_weights(path).defect is None:
        try:
            with safe_open(path, "numpy") as opened:
                names = opened.keys()  # a reader, and no dictionary
                theirs = {name: tuple(opened.get_slice(name).get_shape()) for name in names}
        except SafetensorError as refused:
            pytest.fail(f"accepted here, and there {refused}")
        assert read_weights(path).shapes.items() <= theirs.items()
