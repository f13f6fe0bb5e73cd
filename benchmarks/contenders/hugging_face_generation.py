"""Contenders that generate with Hugging Face's XLNet and GPT-2 (PyTorch)."""

import torch
import transformers

from benchmarks.contenders.hugging_face import network_config
from benchmarks.workload import batches
from data_pipeline.base import command_line

FRAMEWORK = "torch"

torch.set_num_threads(command_line.available_cores())


def xlnet(model, num_prompt, num_new):
    """Set up XLNet's `generate`, which rereads all tokens for each new one."""
    network = transformers.XLNetLMHeadModel(network_config(model)).eval()
    token_ids, _ = batches.token_batch(model, 1, num_prompt)
    token_ids = torch.tensor(token_ids).long()

    @torch.no_grad()
    def run():
        network.generate(
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=5,
        )

    return run


def gpt2(model, num_prompt, num_new):
    """Set up generation by GPT-2 with cached keys and values."""
    network = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=model["vocabulary_size"],
            n_positions=num_prompt + num_new,
            n_embd=model["hidden_dim"],
            n_layer=model["num_layers"],
            n_head=model["num_heads"],
            n_inner=model["intermediate_dim"],
        )
    ).eval()
    token_ids, _ = batches.token_batch(model, 1, num_prompt)
    token_ids = torch.tensor(token_ids).long()
    with torch.no_grad():
        past = network(token_ids[:, :-1], use_cache=True).past_key_values

    @torch.no_grad()
    def run():
        token = token_ids[:, -1:]
        for _ in range(num_new):
            outputs = network(token, past_key_values=past, use_cache=True)
            token = outputs.logits[:, -1:].argmax(-1)
        past.crop(-num_new)

    return run
