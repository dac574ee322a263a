#!/usr/bin/env python3
"""Quantises a Hugging Face model directory to 8-bit weights, as compressed-tensors or as Qwen's FP8 checkpoints lie.

    /usr/bin/python3 deploy/quantise_model.py MODEL OUT --scheme fp8|fp8-block|fp8-qwen|int8 [--head]

Rounds to nearest, without calibration: fp8 and int8 have a scale a row, fp8-block and fp8-qwen one for 128 x 128
weights. Norms, biases and the embedding stay as they are, and so does lm_head without --head. Needs NumPy (Debian:
python3-numpy).
"""
import argparse
import json
import os
import shutil
import struct
import sys

import numpy as np

BLOCK = 128
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def e4m3_values():
    """The value of each magnitude's code, up to the largest, 448."""
    codes = np.arange(0x7F)
    exponent, digits = codes >> 3, codes & 7
    return np.where(exponent > 0, (8 + digits) * 2.0 ** (exponent - 10), digits * 2.0**-9)


E4M3 = e4m3_values()
MIDDLES = (E4M3[1:] + E4M3[:-1]) / 2


def to_e4m3(x):
    """Codes of the nearest values, of two the even code."""
    magnitude = np.abs(x)
    code = np.searchsorted(MIDDLES, magnitude)
    tie = (code < len(MIDDLES)) & (magnitude == MIDDLES[np.minimum(code, len(MIDDLES) - 1)])
    code = np.where(tie & (code % 2 == 1), code + 1, code).astype(np.uint8)
    return code | (np.signbit(x).astype(np.uint8) << 7)


def from_codes(codes, scheme):
    """Values in float64."""
    if scheme == "int8":
        return codes.view(np.int8).astype(np.float64)
    return np.where(codes < 0x80, 1.0, -1.0) * E4M3[np.minimum(codes & 0x7F, 0x7E)]


def spread(scales, shape, scheme):
    """A scale for each weight."""
    if scheme in ("fp8", "int8"):
        return scales
    return np.repeat(np.repeat(scales, BLOCK, 0), BLOCK, 1)[: shape[0], : shape[1]]


def round_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def quantise(w, scheme):
    """w [rows, columns] to codes (uint8, as stored) and scales (FP32): of rows [rows, 1], of blocks BF16 values."""
    largest = np.abs(w)
    if scheme in ("fp8", "int8"):
        largest = largest.max(1, keepdims=True)
    else:
        padded = np.zeros([-(-n // BLOCK) * BLOCK for n in w.shape], np.float32)
        padded[: w.shape[0], : w.shape[1]] = largest
        largest = padded.reshape(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK).max((1, 3))
    scales = np.maximum(largest, 1e-12) / np.float32(127 if scheme == "int8" else 448)
    if scheme in ("fp8-block", "fp8-qwen"):
        scales = round_bf16(scales)
    ratio = w.astype(np.float64) / spread(scales, w.shape, scheme)
    if scheme == "int8":
        return np.clip(np.rint(ratio), -127, 127).astype(np.int8).view(np.uint8), scales
    return to_e4m3(np.clip(ratio, -448, 448)), scales


def dequantise(codes, scales, scheme):
    """What the weights are worth, in float64."""
    return from_codes(codes, scheme) * spread(scales.astype(np.float64), codes.shape, scheme)


def quantization_config(scheme, head):
    if scheme == "fp8-qwen":
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
        }
    weights = {"num_bits": 8, "type": "int" if scheme == "int8" else "float", "symmetric": True, "dynamic": False}
    weights["strategy"] = "block" if scheme == "fp8-block" else "channel"
    if scheme == "fp8-block":
        weights["block_structure"] = [BLOCK, BLOCK]
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if scheme == "int8" else "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": [] if head else ["lm_head"],
        "kv_cache_scheme": None,
    }


def read_safetensors(path):
    """Name to (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = np.memmap(path, np.uint8, "r")
    begin = 8 + struct.unpack("<Q", data[:8].tobytes())[0]
    return {
        name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]])
        for name, t in header.items()
        if name != "__metadata__"
    }


def read_model(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return read_safetensors(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        files = sorted(set(json.load(file)["weight_map"].values()))
    out = {}
    for name in files:
        out.update(read_safetensors(os.path.join(folder, name)))
    return out


def floats(dtype, shape, data):
    if dtype == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype in ("F16", "F32"):
        return data.view("<f2" if dtype == "F16" else "<f4").astype(np.float32).reshape(shape)
    sys.exit(f"expected BF16, F16 or F32 weights, found {dtype}")


def write_safetensors(path, tensors):
    """tensors: name to (dtype, shape, bytes-like)."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data.tobytes())


def quantise_model(folder, out, scheme, head=False):
    """Writes the directory; returns each quantised weight's (codes, scales), by name."""
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if "quantization_config" in config:
        sys.exit(f"{folder}: already quantised")
    config["quantization_config"] = quantization_config(scheme, head)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    for name in os.listdir(folder):
        if name.endswith((".json", ".jinja", ".model", ".txt")) and name != "config.json" and ".index." not in name:
            shutil.copy(os.path.join(folder, name), os.path.join(out, name))
    tensors, quantised = {}, {}
    for name, (dtype, shape, data) in read_model(folder).items():
        module = name[: -len(".weight")]
        if not (module.endswith(MATRICES) or (head and module == "lm_head")) or not name.endswith(".weight"):
            tensors[name] = (dtype, shape, data)
            continue
        codes, scales = quantised[name] = quantise(floats(dtype, shape, data), scheme)
        tensors[name] = ("I8" if scheme == "int8" else "F8_E4M3", shape, codes)
        if scheme in ("fp8", "int8"):
            tensors[module + ".weight_scale"] = ("F32", scales.shape, scales.astype("<f4"))
        else:
            kind = ".weight_scale_inv" if scheme == "fp8-qwen" else ".weight_scale"
            tensors[module + kind] = ("BF16", scales.shape, (scales.view(np.uint32) >> 16).astype("<u2"))
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)
    return quantised


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a directory with config.json and safetensors")
    parser.add_argument("out", help="where to write; made if missing")
    parser.add_argument("--scheme", choices=("fp8", "fp8-block", "fp8-qwen", "int8"), default="fp8")
    parser.add_argument("--head", action="store_true", help="quantise lm_head too, where the model has its own")
    a = parser.parse_args()
    if a.head and a.scheme == "fp8-qwen":
        parser.error("--head: checkpoints of fp8-qwen keep theirs")
    quantised = quantise_model(a.model, a.out, a.scheme, a.head)
    print(f"{a.out}: {len(quantised)} matrices of 8 bits")


if __name__ == "__main__":
    main()
