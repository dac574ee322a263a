#!/usr/bin/env python3
"""Writes the weights of a directory from make_bench_model.py as one GGUF file, for engines that read that.

Matrices keep their BF16 bits, vectors become F32, as usual in GGUF. The vocabulary is made up: the 256 byte tokens and
then numbers. Needs nothing but Python's standard library.
"""
import argparse
import array
import json
import math
import os
import struct
import sys

ALIGNMENT = 32
U32, F32, STRING, ARRAY, BOOL, I32 = 4, 6, 8, 9, 7, 5  # types of metadata
GGML_F32, GGML_BF16 = 0, 30
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in OUTER:
        return OUTER[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{INNER[rest]}.weight"


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    if kind == ARRAY:
        element, values = value
        packed = b"".join(map(text, values)) if element == STRING else struct.pack(f"<{len(values)}i", *values)
        return head + struct.pack("<IQ", element, len(values)) + packed
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def byte_tokens():
    """The printable characters that byte-level BPE writes for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, spare = {}, 256
    for byte in range(256):
        names[byte] = chr(byte if byte in plain else spare)
        spare += byte not in plain
    return [names[byte] for byte in range(256)]


def metadata_of(c):
    p = "qwen3."
    tokens = byte_tokens()
    tokens += [f"<{i}>" for i in range(len(tokens), c["vocab_size"])]
    tokens = tokens[: c["vocab_size"]]
    return [
        metadata("general.architecture", STRING, "qwen3"),
        metadata("general.name", STRING, "random weights"),
        metadata("general.alignment", U32, ALIGNMENT),
        metadata(p + "block_count", U32, c["num_hidden_layers"]),
        metadata(p + "context_length", U32, c["max_position_embeddings"]),
        metadata(p + "embedding_length", U32, c["hidden_size"]),
        metadata(p + "feed_forward_length", U32, c["intermediate_size"]),
        metadata(p + "attention.head_count", U32, c["num_attention_heads"]),
        metadata(p + "attention.head_count_kv", U32, c["num_key_value_heads"]),
        metadata(p + "attention.key_length", U32, c["head_dim"]),
        metadata(p + "attention.value_length", U32, c["head_dim"]),
        metadata(p + "attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"]),
        metadata(p + "rope.freq_base", F32, c["rope_theta"]),
        metadata("tokenizer.ggml.model", STRING, "gpt2"),
        metadata("tokenizer.ggml.pre", STRING, "qwen2"),
        metadata("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        metadata("tokenizer.ggml.token_type", ARRAY, (I32, [1] * len(tokens))),
        metadata("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])),
        metadata("tokenizer.ggml.eos_token_id", U32, 0),
        metadata("tokenizer.ggml.add_bos_token", BOOL, False),
    ]


def read_header(file):
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def widened(data):
    """BF16 to F32."""
    halves, out = array.array("H", data), array.array("H", bytes(2 * len(data)))
    out[1::2] = halves
    return out.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="from make_bench_model.py, BF16")
    parser.add_argument("gguf", help="the file to write")
    a = parser.parse_args()
    if sys.byteorder == "big":
        parser.error("this machine is big-endian")
    with open(os.path.join(a.directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(a.directory, "model.safetensors"), "rb") as source, open(a.gguf, "wb") as out:
        header, base = read_header(source)
        infos, offset, plan = [], 0, []
        for name, tensor in header.items():
            if tensor["dtype"] != "BF16":
                parser.error(f"{a.directory}: tensor {name}: expected BF16, found {tensor['dtype']}")
            shape, vector = tensor["shape"], len(tensor["shape"]) == 1
            size = math.prod(shape) * (4 if vector else 2)
            kind = GGML_F32 if vector else GGML_BF16
            dimensions = struct.pack(f"<{len(shape)}Q", *reversed(shape))
            infos.append(text(gguf_name(name)) + struct.pack("<I", len(shape)) + dimensions)
            infos.append(struct.pack("<IQ", kind, offset))
            plan.append((tensor["data_offsets"], vector))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        entries = metadata_of(config)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(entries)) + b"".join(entries) + b"".join(infos)
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for (begin, end), vector in plan:
            source.seek(base + begin)
            data = source.read(end - begin)
            data = widened(data) if vector else data
            out.write(data + bytes(-len(data) % ALIGNMENT))
    print(f"{a.gguf}: {os.path.getsize(a.gguf) / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
