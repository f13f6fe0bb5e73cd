"""Contenders with this library's models.

Shapes: B batch, T tokens, M memory length, P targets.
"""

import math

import keras
import tensorflow as tf

from benchmarks.contenders import NotAvailable
from benchmarks.contest import machine
from benchmarks.workload import batches
from xlnet_tf import BertConfig
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.tasks import task_kind
from xlnet_tf.training import finetune
from xlnet_tf.training import pretrain
from xlnet_tf.training.backends import make_backend
from xlnet_tf.training.devices import make_step_counter
from xlnet_tf.training.on_tensorflow import make_memory
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.update import make_optimizer
from xlnet_tf.weights.lora.layers import AdaptableDense
from xlnet_tf.weights.lora.layers import AdaptableEinsumDense

FRAMEWORK = "tensorflow"

# Features in a pretraining step of `xlnet_tf.train`.
STEP_FEATURES = (
    "token_ids",
    "segment_ids",
    "factorization_rank",
    "target_positions",
    "target_ids",
    "target_weights",
)


def training_step(
    model,
    batch_size,
    num_tokens,
    num_targets,
    memory_length,
    **options,
):
    """Set up a step of `xlnet_tf.train` with clipping, AdamW and memory."""
    config = XLNetConfig(
        **model,
        memory_length=memory_length,
        reuse_length=num_tokens // 2 if memory_length else 0,
    )
    settings = PretrainingSettings(
        strategy="one_device", batch_size=batch_size, **options
    )
    batch = batches.pretraining_batch(
        model,
        batch_size,
        num_tokens,
        num_targets,
        first_half_length=batches.first_half(num_tokens, memory_length),
    )
    features = {name: batch[name] for name in STEP_FEATURES}
    half = batches.first_half(num_tokens, memory_length)
    return trainer_step(config, settings, features, half)


def objective_step(
    objective, backbone, model, batch_size, num_tokens, num_targets, **options
):
    """Set up a step of `xlnet_tf.train` for an objective, without memory.

    Args:
        objective: str, name of an objective.
        backbone: str, "xlnet" or "bert".
    """
    batch = batches.objective_batch(
        objective, model, batch_size, num_tokens, num_targets
    )
    settings = PretrainingSettings(
        strategy="one_device",
        objective=objective,
        batch_size=batch_size,
        **options,
    )
    return trainer_step(
        objective_config(objective, backbone, model, num_tokens),
        settings,
        batch,
        num_tokens // 2 if objective == "causal" else 0,
    )


def objective_config(objective, backbone, model, num_tokens):
    """Make the config of a backbone for training with an objective."""
    if backbone == "bert":
        buckets = 32 if objective == "pseudo_masked" else 0
        return BertConfig(
            **model, max_positions=num_tokens, relative_position_buckets=buckets
        )
    return XLNetConfig(**model, **OBJECTIVES[objective].config_values)


def step_by_step(model, batch_size, num_tokens, num_targets, **options):
    """Set up `pseudo_masked` with a forward pass for each factorization step.

    One pass hides all targets. Then one pass for each factorization step reads
    the targets of earlier steps and predicts the targets of this step. The
    gradients of all passes are summed.
    """
    passes = 1 + int(batches.block_numbers(num_targets).max()) + 1
    rows = batch_size * passes
    # Every pass has as many targets as the longest block.
    batch = batches.objective_batch("masked", model, rows, num_tokens, 6)
    settings = PretrainingSettings(
        strategy="one_device",
        objective="masked",
        batch_size=rows,
        gradient_accumulation_steps=passes,
        **options,
    )
    config = objective_config("pseudo_masked", "bert", model, num_tokens)
    return trainer_step(config, settings, batch)


def trainer_step(config, training, features, first_half_length=0):
    """Set up a training step on Keras' backend; all calls use one batch.

    Args:
        config: XLNetConfig or BertConfig.
        training: PretrainingSettings of the run.
        features: dict of arrays, the batch.
        first_half_length: int, length of the prefix that cannot attend to later
            tokens. Default 0: there is no such prefix.

    Returns:
        callable.
    """
    backend = make_backend(training)
    model, optimizer = pretrain.build(config, training, backend.strategy)
    memory = make_memory(model, training, backend.strategy)
    loss = pretrain.training_loss(model, first_half_length)
    return _step(backend, model, optimizer, memory, loss, features, training)


def _step(backend, model, optimizer, memory, loss, features, settings):
    """Make a callable for one training step; see `TensorFlow.steps`."""
    steps = backend.steps(
        *(model, optimizer, memory, loss),
        lambda **rows: tf.data.Dataset.from_tensors(features).repeat(),
        *(settings, make_step_counter(backend.strategy)),
    )
    return lambda: steps.make(1)


def inference(model, batch_size, num_tokens, jit_compile):
    """Set up inference of the content stream."""
    backbone = XLNetBackbone(XLNetConfig(**model))
    token_ids, segment_ids = map(
        tf.constant, batches.token_batch(model, batch_size, num_tokens)
    )

    @tf.function(jit_compile=jit_compile)
    def forward(token_ids, segment_ids):
        features = {"token_ids": token_ids, "segment_ids": segment_ids}
        return backbone(features, training=False)["content"]

    return lambda: forward(token_ids, segment_ids).numpy()


def document_by_memory(model, length, segment_length, memory_length):
    """Set up inference on a document in segments, with memory."""
    backbone = XLNetBackbone(XLNetConfig(**model, memory_length=memory_length))
    token_ids, segment_ids = batches.token_batch(model, 1, length)
    segments = [
        (
            tf.constant(token_ids[:, begin : begin + segment_length]),
            tf.constant(segment_ids[:, begin : begin + segment_length]),
        )
        for begin in range(0, length, segment_length)
    ]

    @tf.function(jit_compile=True)
    def forward(token_ids, segment_ids, memories, memory_mask):
        outputs = backbone(
            {
                "token_ids": token_ids,
                "segment_ids": segment_ids,
                "memories": memories,
                "memory_mask": memory_mask,
            },
            training=False,
        )
        return outputs["content"], outputs["memories"], outputs["memory_mask"]

    empty = tuple(
        map(tf.constant, batches.zero_memories(model, 1, memory_length))
    )
    nothing = tf.zeros([1, memory_length], tf.bool)

    def run():
        memories, mask = empty, nothing
        for segment in segments:
            content, memories, mask = forward(*segment, memories, mask)
            content.numpy()

    return run


def document_in_one_piece(model, length):
    """Set up inference on a whole document as a single sequence.

    Raises:
        NotAvailable: if the attention scores would not fit into RAM.
    """
    check_room(model, length)
    return inference(model, 1, length, jit_compile=True)


def check_room(model, length):
    """Refuse a document whose attention scores would not fit into RAM.

    Raises:
        NotAvailable: if the scores would not fit.
    """
    # The arrays are scores by key, scores by distance (twice the size), shifted
    # scores, and probabilities.
    needed = model["num_heads"] * length * length * 4 * 6
    available = machine.available_bytes()
    if available is not None and needed > 0.8 * available:
        raise NotAvailable(
            f"needs about {needed / 2**30:.0f} GiB, and "
            f"{available / 2**30:.0f} GiB are free"
        )


def fine_tuning_step(
    model,
    batch_size,
    num_tokens,
    lora_rank=None,
    as_keras=False,
    **options,
):
    """Set up a step of `xlnet_tf.finetune` on a classifier.

    Args:
        model, batch_size, num_tokens: see `workload.batches`.
        lora_rank: int, rank of adapters. Default None: train all weights.
        as_keras: bool, whether each step adds the product of the adapters to
            the kernel, as Keras does. Default False.
        **options: other settings of the run.

    Returns:
        callable. Its attribute `facts` is a dict of `trained_parameters` and
        `optimizer_bytes`, both int.
    """
    settings = FinetuningSettings(
        strategy="one_device",
        batch_size=batch_size,
        steps=1000,
        learning_rate=1e-5,
        **options,
    ).resolve(steps_per_epoch=100)
    backend = make_backend(settings)
    with backend.strategy.scope():
        classifier = XLNetTextClassifier(
            XLNetBackbone(XLNetConfig(**model), seed=0, dtype=settings.policy),
            num_classes=2,
        )
        if lora_rank:
            classifier.enable_lora(lora_rank)
        if as_keras:
            AdaptableDense.call = keras.layers.Dense.call
            AdaptableEinsumDense.call = keras.layers.EinsumDense.call
        optimizer = make_optimizer(classifier, settings)
    run = _step(
        *(backend, classifier, optimizer, None),
        finetune.training_loss(task_kind("classification")(classifier)),
        batches.task_batch("classification", model, batch_size, num_tokens),
        settings,
    )
    variables = classifier.trainable_variables
    run.facts = {
        "trained_parameters": sum(math.prod(v.shape) for v in variables),
        "optimizer_bytes": sum(
            math.prod(v.shape) * tf.as_dtype(v.dtype).size
            for v in optimizer.variables
        ),
    }
    return run
