"""Contenders with Model Garden's XLNet (tf-models-official, Keras 2).

Masks have Model Garden's polarity: 1 = the query may attend to the key.
"""

import tensorflow as tf
import tf_keras
from official.nlp.modeling.models import bert_pretrainer
from official.nlp.modeling.models import xlnet
from official.nlp.modeling.networks import bert_encoder
from official.nlp.modeling.networks import xlnet_base

from benchmarks.workload import batches

FRAMEWORK = "tensorflow"


def training_step(
    model, batch_size, num_tokens, num_targets, memory_length, jit_compile
):
    """Set up a pretraining step with gradient clipping, AdamW and memory."""
    pretrainer = xlnet.XLNetPretrainer(
        _network(
            model,
            two_stream=True,
            memory_length=memory_length,
            reuse_length=num_tokens // 2 if memory_length else None,
        )
    )
    batch = batches.pretraining_batch(
        model,
        batch_size,
        num_tokens,
        num_targets,
        first_half_length=batches.first_half(num_tokens, memory_length),
    )
    inputs = {
        "input_word_ids": tf.constant(batch["token_ids"]),
        "input_type_ids": tf.constant(batch["segment_ids"]),
        "masked_tokens": tf.constant(batch["is_target"]),
        "permutation_mask": tf.constant(1 - batch["perm_mask"]),
        "target_mapping": tf.constant(batch["target_mapping"]),
    }
    state = None
    if memory_length:
        state = list(
            map(
                tf.constant,
                batches.zero_memories(model, batch_size, memory_length),
            )
        )
    pretrainer({**inputs, "state": state})
    update = _update(pretrainer, clip=0.25)
    target_ids = tf.constant(batch["target_ids"])

    @tf.function(jit_compile=jit_compile)
    def step(state):
        with tf.GradientTape() as tape:
            logits, new_state = pretrainer(
                {**inputs, "state": state}, training=True
            )
            loss = _cross_entropy(target_ids, logits)
        update(tape, loss)
        return loss, new_state

    def run():
        nonlocal state
        loss, new_state = step(state)
        if memory_length:
            state = list(new_state)
        loss.numpy()

    return run


def masked_step(model, batch_size, num_tokens, num_targets, jit_compile):
    """Set up a training step of BERT, whose head reads only the targets."""
    network = bert_encoder.BertEncoderV2(
        vocab_size=model["vocabulary_size"],
        hidden_size=model["hidden_dim"],
        num_layers=model["num_layers"],
        num_attention_heads=model["num_heads"],
        max_sequence_length=num_tokens,
        type_vocab_size=2,
        inner_dim=model["intermediate_dim"],
        initializer=_initializer(),
    )
    pretrainer = bert_pretrainer.BertPretrainerV2(
        network, mlm_activation="gelu", mlm_initializer=_initializer()
    )
    batch = batches.objective_batch(
        "masked", model, batch_size, num_tokens, num_targets
    )
    inputs = {
        "input_word_ids": tf.constant(batch["token_ids"]),
        "input_type_ids": tf.constant(batch["segment_ids"]),
        "input_mask": tf.ones([batch_size, num_tokens], tf.int32),
        "masked_lm_positions": tf.constant(batch["target_positions"]),
    }
    pretrainer(inputs)
    update = _update(pretrainer, clip=0.25)
    target_ids = tf.constant(batch["target_ids"])

    @tf.function(jit_compile=jit_compile)
    def step():
        with tf.GradientTape() as tape:
            logits = pretrainer(inputs, training=True)["mlm_logits"]
            loss = _cross_entropy(target_ids, logits)
        update(tape, loss)
        return loss

    return lambda: step().numpy()


def inference(model, batch_size, num_tokens, jit_compile):
    """Set up inference of the content stream."""
    network = _network(model, two_stream=False)
    token_ids, segment_ids = map(
        tf.constant, batches.token_batch(model, batch_size, num_tokens)
    )

    @tf.function(jit_compile=jit_compile)
    def forward(token_ids, segment_ids):
        return network(
            input_ids=token_ids, segment_ids=segment_ids, training=False
        )[0]

    return lambda: forward(token_ids, segment_ids).numpy()


def fine_tuning_step(model, batch_size, num_tokens, jit_compile):
    """Set up a step of AdamW on a classifier."""
    classifier = xlnet.XLNetClassifier(
        _network(model, two_stream=False),
        num_classes=2,
        initializer=_initializer(),
    )
    token_ids, segment_ids = map(
        tf.constant, batches.token_batch(model, batch_size, num_tokens)
    )
    inputs = {
        "input_word_ids": token_ids,
        "input_type_ids": segment_ids,
        "input_mask": tf.ones_like(token_ids),
    }
    classifier(inputs)
    update = _update(classifier, clip=1.0)
    labels = tf.constant(batches.labels(batch_size))

    @tf.function(jit_compile=jit_compile)
    def step():
        with tf.GradientTape() as tape:
            loss = _cross_entropy(labels, classifier(inputs, training=True))
        update(tape, loss)
        return loss

    return lambda: step().numpy()


def _network(model, two_stream, memory_length=0, reuse_length=None):
    return xlnet_base.XLNetBase(
        vocab_size=model["vocabulary_size"],
        num_layers=model["num_layers"],
        hidden_size=model["hidden_dim"],
        num_attention_heads=model["num_heads"],
        head_size=model["head_dim"],
        inner_size=model["intermediate_dim"],
        dropout_rate=0.1,
        attention_dropout_rate=0.1,
        attention_type="bi",
        bi_data=False,
        initializer=_initializer(),
        two_stream=two_stream,
        tie_attention_biases=False,
        memory_length=memory_length,
        reuse_length=reuse_length,
        inner_activation="gelu",
    )


def _initializer():
    return tf_keras.initializers.RandomNormal(stddev=0.02)


def _update(model, clip):
    """Make a function that applies the gradients of a loss to the weights."""
    variables = model.trainable_variables
    optimizer = tf_keras.optimizers.AdamW(1e-5, weight_decay=0.01)
    optimizer.build(variables)

    def update(tape, loss):
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(
                tape.gradient(loss, variables), variables, strict=True
            )
            if gradient is not None
        ]
        gradients, with_gradient = zip(*pairs, strict=True)
        gradients, _ = tf.clip_by_global_norm(gradients, clip)
        optimizer.apply_gradients(zip(gradients, with_gradient, strict=True))

    return update


def _cross_entropy(labels, logits):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits
        )
    )
