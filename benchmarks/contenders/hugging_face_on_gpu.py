"""Contenders with Hugging Face's XLNet on an accelerator, in bfloat16.

A program is two functions: the first starts a step, and the second waits for
the result of the last step. In training, weights are float32, and autocast
computes matrix products in bfloat16, as is usual with PyTorch.
"""

import torch
import transformers

from benchmarks.contenders.hugging_face import network_config
from benchmarks.workload import batches

_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def device_name():
    """Name of the device, from its driver."""
    return torch.cuda.get_device_name() if _DEVICE == "cuda" else "cpu"


def peak_bytes():
    """Peak of the device memory in bytes, or None if unknown."""
    return torch.cuda.max_memory_allocated() if _DEVICE == "cuda" else None


def training_step(
    model,
    batch_size,
    num_tokens,
    num_targets,
    memory_length,
    precision="bfloat16",
    compiled=False,
):
    """Set up a pretraining step with gradient clipping, AdamW and memory."""
    config = network_config(
        model,
        mem_len=memory_length or None,
        reuse_len=num_tokens // 2 if memory_length else None,
    )
    network = transformers.XLNetLMHeadModel(config).to(_DEVICE).train()
    batch = batches.pretraining_batch(
        model,
        batch_size,
        num_tokens,
        num_targets,
        first_half_length=batches.first_half(num_tokens, memory_length),
    )
    inputs = {
        "input_ids": _integers(batch["token_ids"]),
        "token_type_ids": _integers(batch["segment_ids"]),
        "perm_mask": torch.tensor(batch["perm_mask"], device=_DEVICE),
        "target_mapping": torch.tensor(batch["target_mapping"], device=_DEVICE),
        "labels": _integers(batch["target_ids"]),
        "use_mems": bool(memory_length),
    }
    mems = None
    if memory_length:
        mems = [
            torch.tensor(memory, device=_DEVICE).transpose(0, 1)
            for memory in batches.zero_memories(
                model, batch_size, memory_length
            )
        ]
    forward = torch.compile(network) if compiled else network
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=1e-5,
        weight_decay=0.01,
        fused=_DEVICE == "cuda",
    )
    loss = None

    def run():
        nonlocal mems, loss
        with torch.autocast(
            _DEVICE, torch.bfloat16, enabled=precision == "bfloat16"
        ):
            outputs = forward(**inputs, mems=mems)
        loss = outputs.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if memory_length:
            mems = [memory.detach() for memory in outputs.mems]

    return run, lambda: loss.item()


def inference(
    model, batch_size, num_tokens, precision="bfloat16", compiled=False
):
    """Set up inference of the content stream, with weights in `precision`."""
    network = transformers.XLNetModel(network_config(model))
    network = network.to(_DEVICE, getattr(torch, precision)).eval()
    token_ids, segment_ids = map(
        _integers, batches.token_batch(model, batch_size, num_tokens)
    )
    forward = torch.compile(network) if compiled else network
    content = None

    @torch.no_grad()
    def run():
        nonlocal content
        content = forward(
            input_ids=token_ids, token_type_ids=segment_ids, use_mems=False
        )[0]

    return run, lambda: content[0, 0, 0].item()


def _integers(array):
    return torch.tensor(array, device=_DEVICE).long()
