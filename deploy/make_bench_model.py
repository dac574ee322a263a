#!/usr/bin/env python3
"""Writes a Hugging Face model directory of a given shape with random weights, for measuring speed.

The default is the shape of Qwen3-0.6B: BF16, tied embeddings, 1.19 GB. Its byte-level tokenizer has as many tokens as the
model, so that a server can be measured too: the bytes, then pieces of two and of four letters. --quantise makes the
layers' matrices 8 bits, and with --untied the head's. Needs nothing but Python's standard library; weights repeat one
random block, so it writes as fast as the disk takes it.
"""
import argparse
import array
import bisect
import itertools
import json
import math
import os
import random
import string
import struct
import sys

BLOCK_VALUES = 1 << 20
BLOCK = 128
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1}
CODES = {"fp8": "F8_E4M3", "fp8-block": "F8_E4M3", "int8": "I8"}
E4M3 = [(8 + c % 8) * 2.0 ** (c // 8 - 10) if c > 7 else c * 2.0**-9 for c in range(0x7F)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="where to write; made if missing")
    for name, default, text in (
        ("hidden", 1024, "width of the residual stream"),
        ("inner", 3072, "width of the MLP"),
        ("layers", 28, "layers"),
        ("heads", 16, "query heads"),
        ("kv-heads", 8, "key and value heads"),
        ("head-dim", 128, "width of a head"),
        ("vocab", 151936, "vocabulary"),
        ("context", 40960, "max_position_embeddings"),
        ("seed", 0, "of the random block"),
    ):
        parser.add_argument("--" + name, type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--dtype", choices=("BF16", "F16", "F32"), default="BF16", help="of every tensor (BF16)")
    parser.add_argument("--untied", action="store_true", help="give the model its own lm_head")
    parser.add_argument("--quantise", choices=("fp8", "fp8-block", "int8"),
                        help="8-bit matrices with a scale a row, or for 128 x 128 weights")
    arguments = parser.parse_args()
    for name, value in vars(arguments).items():
        if isinstance(value, int) and not isinstance(value, bool) and name != "seed" and value < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1, found {value}")
    if arguments.heads % arguments.kv_heads:
        parser.error(f"--heads {arguments.heads} is no multiple of --kv-heads {arguments.kv_heads}")
    if arguments.head_dim % 2:
        parser.error(f"--head-dim: expected an even number, found {arguments.head_dim}")
    return arguments


def config_of(a):
    more = {"quantization_config": quantization_of(a)} if a.quantise else {}
    return more | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": a.hidden,
        "intermediate_size": a.inner,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "vocab_size": a.vocab,
        "max_position_embeddings": a.context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": not a.untied,
        "use_sliding_window": False,
        "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[a.dtype],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def quantization_of(a):
    weights = {"num_bits": 8, "type": "int" if a.quantise == "int8" else "float", "symmetric": True, "dynamic": False}
    weights["strategy"] = "block" if a.quantise == "fp8-block" else "channel"
    if a.quantise == "fp8-block":
        weights["block_structure"] = [BLOCK, BLOCK]
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if a.quantise == "int8" else "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": [],
    }


def tensors_of(a):
    """Name, shape, standard deviation (None: all the same) and dtype, in file order."""
    for name, shape, deviation in float_tensors_of(a):
        quantised = a.quantise and name.endswith(("_proj.weight", "lm_head.weight"))
        yield name, shape, deviation, CODES[a.quantise] if quantised else a.dtype
        if quantised and a.quantise == "fp8-block":
            yield name + "_scale", tuple(-(-n // BLOCK) for n in shape), None, "BF16"
        elif quantised:
            yield name + "_scale", (shape[0], 1), None, "F32"


def float_tensors_of(a):
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim

    def matrix(name, rows, columns):
        return name, (rows, columns), 1 / math.sqrt(columns)

    yield "model.embed_tokens.weight", (a.vocab, a.hidden), 1 / math.sqrt(a.hidden)
    for layer in range(a.layers):
        p = f"model.layers.{layer}."
        yield p + "input_layernorm.weight", (a.hidden,), None
        yield matrix(p + "self_attn.q_proj.weight", q, a.hidden)
        yield matrix(p + "self_attn.k_proj.weight", kv, a.hidden)
        yield matrix(p + "self_attn.v_proj.weight", kv, a.hidden)
        yield matrix(p + "self_attn.o_proj.weight", a.hidden, q)
        yield p + "self_attn.q_norm.weight", (a.head_dim,), None
        yield p + "self_attn.k_norm.weight", (a.head_dim,), None
        yield p + "post_attention_layernorm.weight", (a.hidden,), None
        yield matrix(p + "mlp.gate_proj.weight", a.inner, a.hidden)
        yield matrix(p + "mlp.up_proj.weight", a.inner, a.hidden)
        yield matrix(p + "mlp.down_proj.weight", a.hidden, a.inner)
    yield "model.norm.weight", (a.hidden,), None
    if a.untied:
        yield matrix("lm_head.weight", a.vocab, a.hidden)


def encode(values, dtype):
    """Little-endian floats, or codes of values within the dtype's range (truncated: random anyway)."""
    if dtype == "I8":
        return array.array("b", map(int, values)).tobytes()
    if dtype == "F8_E4M3":
        return bytes(bisect.bisect_right(E4M3, abs(v)) - 1 | (0x80 if v < 0 else 0) for v in values)
    if dtype == "F16":
        values = list(values)
        return struct.pack(f"<{len(values)}e", *values)
    words = array.array("f", values)
    if sys.byteorder == "big":
        words.byteswap()
    if dtype == "F32":
        return words.tobytes()
    halves = array.array("H")
    halves.frombytes(words.tobytes())
    return halves[1::2].tobytes()


def write_tensors(path, a):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _, dtype in tensors_of(a):
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    generator = random.Random(a.seed)
    unit = [generator.uniform(-math.sqrt(3), math.sqrt(3)) for _ in range(BLOCK_VALUES)]
    blocks = {}  # a block for each standard deviation and dtype
    largest = {"I8": 127.99, "F8_E4M3": 448.0}
    shift, scale = 0, 1.0
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, deviation, dtype in tensors_of(a):
            if deviation is None:
                file.write(encode([scale if name.endswith("_scale") else 1.0] * math.prod(shape), dtype))
                continue
            if dtype in largest:  # codes fill their range, and the scale that follows makes the deviation
                scale, deviation = deviation * math.sqrt(3) / largest[dtype], largest[dtype] / math.sqrt(3)
            if (deviation, dtype) not in blocks:
                blocks[deviation, dtype] = encode((value * deviation for value in unit), dtype)
            element = BYTES[dtype]
            block, left = blocks[deviation, dtype], math.prod(shape) * element
            shift = (shift + 7919 * element) % len(block)  # no two tensors alike
            position = shift
            while left > 0:
                piece = block[position : position + left]
                file.write(piece)
                left -= len(piece)
                position = 0
    return 8 + len(text) + offset


def byte_characters():
    """The printable character that stands for every byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in plain)
    return [chr(c) for c in (*plain, *(256 + n for n, _ in enumerate(others)))]


def tokenizer_of(vocabulary):
    """As many tokens as the model has, each made of two before it; None when there is no room for the bytes."""
    if vocabulary < 256:
        return None
    letters = string.ascii_lowercase
    pairs = [a + b for a in letters for b in letters]
    merges = itertools.chain(((a[0], a[1]) for a in pairs), itertools.product(pairs, pairs))
    merges = list(itertools.islice(merges, vocabulary - 256))
    tokens = byte_characters() + [a + b for a, b in merges]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [f"{a} {b}" for a, b in merges],
        },
    }


def main():
    a = parse_arguments()
    os.makedirs(a.directory, exist_ok=True)
    with open(os.path.join(a.directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config_of(a), file, indent=2)
        file.write("\n")
    tokenizer = tokenizer_of(a.vocab)
    if tokenizer:
        with open(os.path.join(a.directory, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(tokenizer, file, ensure_ascii=False)
    size = write_tensors(os.path.join(a.directory, "model.safetensors"), a)
    print(f"{a.directory}: {size / 1e9:.2f} GB of random weights")


if __name__ == "__main__":
    main()
