"""Make a tiny Qwen3 with random weights, a tokenizer and a chat template: `python tiny_qwen3.py DIRECTORY`.

Run by an environment that has torch, transformers and tokenizers (vLLM's). It says nothing sensible, but every token it
gives is text of its own: the rows of all other tokens in the output matrix are zero, so that these are never the best.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def main(place: Path) -> None:
    """Write config.json, the weights and the tokenizer."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL})
    fast.chat_template = TEMPLATE
    fast.save_pretrained(place)

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=fast.eos_token_id,
        dtype="bfloat16",
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    plain = [n for n, letter in enumerate(letters) if letter.isascii() and letter.isalpha()]
    silent = [n for n in range(config.vocab_size) if n not in plain]
    with torch.no_grad():
        model.lm_head.weight *= 20
        model.lm_head.weight[silent] = 0
    model.save_pretrained(place)


main(Path(sys.argv[1]))
