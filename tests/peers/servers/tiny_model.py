"""A language model of half a megabyte with random weights: every sentence is nonsense, and every grammar holds.

Runs in the peers' own environment: ``.venv-peers/bin/python tiny_model.py PATH``.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HIDDEN, HEADS, CONTEXT = 2, 64, 128, 4, 2048
SEED = 7

#: Bytes as the tokenizer names them, after the three tokens that every such model has.
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(path: Path) -> None:
    """The model as one file."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer)
    chance = np.random.default_rng(SEED)

    def tensor(name: str, *shape: int) -> None:
        weights = chance.standard_normal(shape).astype(np.float32) * 0.05
        writer.add_tensor(f"{name}.weight", weights)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))

    tensor("token_embd", len(TOKENS), WIDTH)
    tensor("output", len(TOKENS), WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm")
        norm(f"{block}.ffn_norm")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{block}.{part}", WIDTH, WIDTH)
        tensor(f"{block}.ffn_gate", HIDDEN, WIDTH)
        tensor(f"{block}.ffn_up", HIDDEN, WIDTH)
        tensor(f"{block}.ffn_down", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    kinds = gguf.TokenType
    special = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL]
    writer.add_token_types([*special, *([kinds.BYTE] * 256), kinds.NORMAL])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
