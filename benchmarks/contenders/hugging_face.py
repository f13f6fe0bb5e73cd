"""Contenders with Hugging Face's XLNet and BERT (transformers, PyTorch)."""

import shutil

import torch
import transformers

from benchmarks.contenders import NotAvailable
from benchmarks.workload import batches
from data_pipeline.base import command_line

FRAMEWORK = "torch"

torch.set_num_threads(command_line.available_cores())


def training_step(
    model, batch_size, num_tokens, num_targets, memory_length, **options
):
    """Set up a pretraining step with gradient clipping, AdamW and memory.

    Args:
        model, batch_size, num_tokens, num_targets, memory_length: see
            `workload.batches`.
        **options: see `_forward`.

    Returns:
        callable.
    """
    config = network_config(
        model,
        mem_len=memory_length or None,
        reuse_len=num_tokens // 2 if memory_length else None,
    )
    network = transformers.XLNetLMHeadModel(config).train()
    batch = batches.pretraining_batch(
        model,
        batch_size,
        num_tokens,
        num_targets,
        first_half_length=batches.first_half(num_tokens, memory_length),
    )
    inputs = {
        "input_ids": torch.tensor(batch["token_ids"]).long(),
        "token_type_ids": torch.tensor(batch["segment_ids"]).long(),
        "perm_mask": torch.tensor(batch["perm_mask"]),
        "target_mapping": torch.tensor(batch["target_mapping"]),
        "labels": torch.tensor(batch["target_ids"]).long(),
        "use_mems": bool(memory_length),
    }
    mems = None
    if memory_length:
        mems = [
            torch.tensor(memory).transpose(0, 1)
            for memory in batches.zero_memories(
                model, batch_size, memory_length
            )
        ]
    forward = _forward(network, **options)
    update = _update(network, clip=0.25)

    def run():
        nonlocal mems
        outputs = forward(**inputs, mems=mems)
        update(outputs.loss)
        if memory_length:
            mems = [memory.detach() for memory in outputs.mems]

    return run


def masked_step(model, batch_size, num_tokens, num_targets, compiled=False):
    """Set up a training step of BERT, whose head reads every token."""
    config = transformers.BertConfig(
        vocab_size=model["vocabulary_size"],
        hidden_size=model["hidden_dim"],
        num_hidden_layers=model["num_layers"],
        num_attention_heads=model["num_heads"],
        intermediate_size=model["intermediate_dim"],
        max_position_embeddings=num_tokens,
    )
    network = transformers.BertForMaskedLM(config).train()
    batch = batches.objective_batch(
        "masked", model, batch_size, num_tokens, num_targets
    )
    positions = torch.tensor(batch["target_positions"]).long()
    labels = torch.full((batch_size, num_tokens), -100)
    labels.scatter_(1, positions, torch.tensor(batch["target_ids"]).long())
    inputs = {
        "input_ids": torch.tensor(batch["token_ids"]).long(),
        "token_type_ids": torch.tensor(batch["segment_ids"]).long(),
        "labels": labels,
    }
    forward = _forward(network, compiled)
    update = _update(network, clip=0.25)
    return lambda: update(forward(**inputs).loss)


def inference(model, batch_size, num_tokens, compiled=False):
    """Set up inference of the content stream."""
    network = transformers.XLNetModel(network_config(model)).eval()
    inputs = _tokens(model, batch_size, num_tokens)
    forward = _forward(network, compiled)

    @torch.no_grad()
    def run():
        forward(**inputs, use_mems=False)

    return run


def openvino_inference(model, batch_size, num_tokens, precision):
    """Set up inference of the content stream by OpenVINO."""
    network = transformers.XLNetModel(network_config(model)).eval()
    inputs = _tokens(model, batch_size, num_tokens)
    try:
        import openvino
    except ModuleNotFoundError as error:
        raise NotAvailable(f"{error.name} is not installed") from error
    converted = openvino.convert_model(_Content(network), example_input=inputs)
    compiled = openvino.Core().compile_model(
        converted, "CPU", {"INFERENCE_PRECISION_HINT": precision}
    )
    arrays = [inputs[port.get_any_name()] for port in compiled.inputs]
    return lambda: compiled(arrays)


class _Content(torch.nn.Module):
    """Network without the optional inputs, which OpenVINO cannot trace."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, input_ids, token_type_ids):
        return self.network(
            input_ids, token_type_ids=token_type_ids, use_mems=False
        )[0]


def fine_tuning_step(model, batch_size, num_tokens, **options):
    """Set up a step of AdamW on a classifier; for `options` see `_forward`."""
    network = transformers.XLNetForSequenceClassification(
        network_config(model, num_labels=2)
    ).train()
    inputs = _tokens(model, batch_size, num_tokens)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["labels"] = torch.tensor(batches.labels(batch_size)).long()
    forward = _forward(network, **options)
    update = _update(network, clip=1.0)
    return lambda: update(forward(**inputs, use_mems=False).loss)


def network_config(model, **others):
    """Make Hugging Face's XLNetConfig of the sizes in `model`, dropout 0.1."""
    return transformers.XLNetConfig(
        vocab_size=model["vocabulary_size"],
        d_model=model["hidden_dim"],
        n_layer=model["num_layers"],
        n_head=model["num_heads"],
        d_inner=model["intermediate_dim"],
        ff_activation="gelu",
        untie_r=True,
        attn_type="bi",
        dropout=0.1,
        **others,
    )


def _tokens(model, batch_size, num_tokens):
    token_ids, segment_ids = batches.token_batch(model, batch_size, num_tokens)
    return {
        "input_ids": torch.tensor(token_ids).long(),
        "token_type_ids": torch.tensor(segment_ids).long(),
    }


def _forward(network, compiled=False, precision="float32"):
    """Make the forward pass of a network.

    Args:
        network: torch.nn.Module.
        compiled: bool, whether torch.compile compiles the network.
            Default False.
        precision: "float32" (default), or "bfloat16", in which PyTorch's
            autocast computes matrix products.

    Returns:
        callable.
    """
    if compiled:
        if shutil.which("g++") is None:
            raise NotAvailable("torch.compile needs a C++ compiler")
        network = torch.compile(network)
    if precision == "float32":
        return network

    def forward(**inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return network(**inputs)

    return forward


def _update(network, clip):
    """Make a function that takes a loss and makes one step of AdamW."""
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=1e-5, weight_decay=0.01
    )

    def update(loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update
