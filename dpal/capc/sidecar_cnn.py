"""A small convolutional net of a site, on images of who asks, that neither shows the other.

A program of its own, in an environment of its own (`spu`, docs/capc.md): it imports nothing of
dpal. Who asks, one site and the guardian run it at the same time; they are the three parties of
ABY3, by SecretFlow's SPU. Who asks and the site end with shares, modulo 2**64, of the site's yes or
no for each image and label: the site's share is a uniform mask that it drew itself, so that who
asks sees uniform numbers, and the guardian sees nothing. No vote is put together here: a vote in
mode shares counts them.

    python sidecar_cnn.py PARTY < SETTINGS.json
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

QUERIER, SITE, GUARDIAN = "querier", "site", "guardian"
RANKS: Final = {QUERIER: 0, SITE: 1, GUARDIAN: 2}
SIDE: Final = 28

_STRIDE, _KERNEL, _CHANNELS = 2, 5, (8, 16)
_FLAT = 4 * 4 * _CHANNELS[1]  # 28 -> 12 -> 4
_PATIENCE_MS = 20_000  # that a party may be silent, once all are there
_EVALUATION_BYTES = 16  # as `dpal.capc.messages` has it, which is not imported here
_GRACE = 1.0  # seconds in which the last receipts arrive
_GOODBYE = 10.0  # and in which the others must say that they are done


def shapes_of(labels: int) -> dict[str, tuple[int, ...]]:
    """What a site's net is made of, by name and shape."""
    first, second = _CHANNELS
    return {
        "conv_1": (first, 1, _KERNEL, _KERNEL),
        "bias_1": (first,),
        "conv_2": (second, first, _KERNEL, _KERNEL),
        "bias_2": (second,),
        "dense": (labels, _FLAT),
        "bias_3": (labels,),
    }


def plain_bits(net: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """(n, labels) yes or no in plain text, by none of SPU's arithmetic."""
    hidden = images[:, None].astype(np.float64)
    for number in (1, 2):
        weights, bias = net[f"conv_{number}"], net[f"bias_{number}"]
        window = (_KERNEL, _KERNEL)
        seen = np.lib.stride_tricks.sliding_window_view(hidden, window, axis=(2, 3))
        seen = seen[:, :, ::_STRIDE, ::_STRIDE]
        hidden = np.einsum("ncxyij,ocij->noxy", seen, weights) + bias[None, :, None, None]
        hidden = np.maximum(hidden, 0.0)
    return np.asarray(hidden.reshape(len(images), -1) @ net["dense"].T + net["bias_3"] >= 0)


def evaluate_net(party: str, settings: dict[str, Any]) -> None:
    """Takes part, as who asks, a site or the guardian.

    Args:
      party: which.
      settings: `addresses` (host:port of who asks, site and guardian), `queries`, `labels`, `input`
        (`.npz`: `images`, or the net), `output` (`.npz`: `shares`), and `certificate`, `key` and
        `authority` (PEM files): connections are mutual TLS.
    """
    import spu
    from spu import libspu

    own, labels, queries = RANKS[party], settings["labels"], settings["queries"]
    inputs = _inputs(party, settings)
    config = libspu.RuntimeConfig(
        protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64, fxp_fraction_bits=18
    )
    program = _compiled(queries, labels)  # before anybody waits for it
    link = libspu.link.create_brpc(_described(libspu, settings), own)
    io, runtime = spu.Io(3, config), spu.Runtime(link, config)
    for name in program.input_names:
        owner = RANKS[QUERIER if name == "images" else SITE]
        if own == owner:
            shares = io.make_shares(inputs[name], libspu.Visibility.VIS_SECRET)
            for rank in set(RANKS.values()) - {own}:
                link.send(rank, _packed(shares[rank]))
            runtime.set_var(name, shares[own])
        else:
            runtime.set_var(name, _unpacked(libspu, link.recv(owner)))
    began = time.monotonic()
    runtime.run(program)
    took = time.monotonic() - began
    result = runtime.get_var(program.output_names[0])
    if own == RANKS[QUERIER]:
        others = [_unpacked(libspu, link.recv(rank)) for rank in (1, 2)]
        told = io.reconstruct([result, *others]).astype(np.int64)
        evaluation = bytes(link.recv(RANKS[SITE]))
        images = [hashlib.sha256(image.tobytes()).digest() for image in inputs["images"]]
        digests = np.frombuffer(b"".join(images), np.uint8).reshape(queries, -1)
        shares = told.reshape(queries, labels).view(np.uint64)
        _keep(settings["output"], evaluation, shares=shares, queries=digests)
    else:
        link.send(RANKS[QUERIER], _packed(result))
    if own == RANKS[SITE]:
        evaluation = secrets.token_bytes(_EVALUATION_BYTES)
        shares = np.uint64(0) - inputs["mask"].view(np.uint64)
        _keep(settings["output"], evaluation, shares=shares)
        link.send(RANKS[QUERIER], evaluation)
    sys.stdout.write(f"{queries} images in {took:.2f} seconds\n")
    sys.stdout.flush()
    # What is left is politeness: a party that is gone by now keeps nobody.
    threading.Timer(_GOODBYE, os._exit, (0,)).start()
    link.stop_link()  # waits for what others still send
    time.sleep(_GRACE)
    os._exit(0)


def _inputs(party: str, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """What a party brings, checked; the site's mask is drawn here and serves once."""
    queries, labels = settings["queries"], settings["labels"]
    if party == GUARDIAN:
        return {}
    wanted = {"images": (queries, SIDE, SIDE)} if party == QUERIER else shapes_of(labels)
    # numpy loads no pickled object unless it is told to.
    with np.load(settings["input"]) as given:
        found = {name: given[name].astype(np.float32) for name in given.files}
    if {name: array.shape for name, array in found.items()} != wanted:
        raise SystemExit(f"{settings['input']} must hold {wanted}, and nothing else")
    if party == SITE:
        drawn = secrets.token_bytes(8 * queries * labels)
        found["mask"] = np.frombuffer(drawn, dtype=np.int64).reshape(queries, labels)
    return found


def _compiled(queries: int, labels: int) -> Any:
    """The program that all three run: bits of a net's outputs, plus a mask."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from spu import libspu
    from spu.utils import frontend

    def masked_bits(images: Any, mask: Any, *net: Any) -> Any:
        conv_1, bias_1, conv_2, bias_2, dense, bias_3 = net
        hidden = images[:, None]
        for weights, bias in ((conv_1, bias_1), (conv_2, bias_2)):
            stride = (_STRIDE, _STRIDE)
            hidden = jax.lax.conv_general_dilated(hidden, weights, stride, "VALID")
            hidden = jnp.maximum(hidden + bias[None, :, None, None], 0)
        numbers = hidden.reshape(queries, -1) @ dense.T + bias_3
        return (numbers >= 0).astype(jnp.int64) + mask

    shapes = {"images": (queries, SIDE, SIDE), "mask": (queries, labels), **shapes_of(labels)}
    made_up = [
        np.zeros(shape, np.int64 if name == "mask" else np.float32)
        for name, shape in shapes.items()
    ]
    hidden = [libspu.Visibility.VIS_SECRET] * len(shapes)
    program, _ = frontend.compile(
        frontend.Kind.JAX, masked_bits, made_up, {}, list(shapes), hidden, lambda _: ["shares"]
    )
    return program


def _described(libspu: Any, settings: dict[str, Any]) -> Any:
    """The three parties, and mutual TLS between them."""
    described = libspu.link.Desc()
    described.recv_timeout_ms = _PATIENCE_MS
    for party, address in zip(RANKS, settings["addresses"], strict=True):
        described.add_party(party, address)
    described.enable_ssl = True
    for options in (described.server_ssl_opts, described.client_ssl_opts):
        options.cert.certificate_path = settings["certificate"]
        options.cert.private_key_path = settings["key"]
        options.verify.ca_file_path = settings["authority"]
        options.verify.verify_depth = 1
    return described


def _packed(share: Any) -> bytes:
    """A share's bytes: fields of their lengths, and nothing that could be run."""
    fields = [share.meta, *share.share_chunks]
    return b"".join(part for field in fields for part in (struct.pack("<I", len(field)), field))


def _unpacked(libspu: Any, data: bytes) -> Any:
    fields, start = [], 0
    while start < len(data):
        (length,) = struct.unpack_from("<I", data, start)
        fields.append(bytes(data[start + 4 : start + 4 + length]))
        start += 4 + length
    share = libspu.Share()
    share.meta, share.share_chunks = fields[0], fields[1:]
    return share


def _keep(path: str, evaluation: bytes, **arrays: np.ndarray) -> None:
    place = Path(path)
    partial = place.with_name(
        f".{place.name}.{os.getpid()}.part"
    )  # whoever reads the folder sees whole files
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    with partial.open("wb") as stream:
        np.savez(stream, evaluation=np.frombuffer(evaluation, np.uint8), **arrays)  # type: ignore[arg-type]
        stream.flush()
        os.fsync(stream.fileno())
    try:
        os.link(partial, place)  # and not a rename, which would replace what was voted by
    finally:
        partial.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in RANKS:
        raise SystemExit(f"usage: sidecar_cnn.py {'|'.join(RANKS)} < SETTINGS.json")
    evaluate_net(sys.argv[1], json.load(sys.stdin))
