"""Writes the files of this directory: one-layer models of other libraries.

Needs transformers with torch and tf-models-official. From the root:

    python -m tests.golden.peers.make [NAME ...]

Each directory holds a model as that library saves it and, in `expected.npz`,
its inputs and outputs. The files are never written again.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
SIZES = dict(vocab=29, width=6, heads=2, inner=5, classes=3)


def inputs():
    """Token ids, segments and a padding mask, padded on the left."""
    random = np.random.default_rng(0)
    mask = np.ones((2, 7), "int32")
    mask[1, :3] = 0
    return dict(
        token_ids=random.integers(0, SIZES["vocab"], (2, 7)).astype("int32"),
        segment_ids=random.integers(0, 2, (2, 7)).astype("int32"),
        padding_mask=mask,
    )


def make_hugging_face(directory):
    """XLNetForSequenceClassification of transformers."""
    import torch
    import transformers

    config = transformers.XLNetConfig(
        vocab_size=SIZES["vocab"],
        d_model=SIZES["width"],
        n_head=SIZES["heads"],
        d_inner=SIZES["inner"],
        n_layer=1,
        mem_len=None,
        id2label={0: "no", 1: "maybe", 2: "yes"},
    )
    model = transformers.XLNetForSequenceClassification(config).eval()
    random = torch.Generator().manual_seed(0)
    values = inputs()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=random)
        logits = model(
            input_ids=torch.tensor(values["token_ids"]).long(),
            token_type_ids=torch.tensor(values["segment_ids"]).long(),
            attention_mask=torch.tensor(values["padding_mask"]).float(),
        ).logits
    model.save_pretrained(directory)
    np.savez(directory / "expected.npz", logits=logits.numpy(), **values)


def make_bert(directory):
    """BertForMaskedLM of transformers: logits of two and three axes of mask."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=SIZES["vocab"],
        hidden_size=SIZES["width"],
        num_attention_heads=SIZES["heads"],
        intermediate_size=SIZES["inner"],
        num_hidden_layers=1,
        max_position_embeddings=11,
    )
    model = transformers.BertForMaskedLM(config).eval()
    random = torch.Generator().manual_seed(0)
    values = inputs()
    later = np.triu(np.ones((7, 7), "int32"), 1)
    values["perm_mask"] = np.stack([later, later])
    values["position_ids"] = np.array([[0, 1, 1, 2, 10, 3, 4]] * 2, "int32")
    theirs = dict(
        input_ids=torch.tensor(values["token_ids"]).long(),
        token_type_ids=torch.tensor(values["segment_ids"]).long(),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=random)
        logits = model(
            attention_mask=torch.tensor(values["padding_mask"]).long(), **theirs
        ).logits
        literal_logits = model(
            # With an axis of heads that code takes it as it is.
            attention_mask=torch.tensor(values["perm_mask"][:, None] == 0),
            position_ids=torch.tensor(values["position_ids"]).long(),
            **theirs,
        ).logits
    model.save_pretrained(directory)
    np.savez(
        directory / "expected.npz",
        logits=logits.numpy(),
        literal_logits=literal_logits.numpy(),
        **values,
    )


def make_model_garden(directory):
    """XLNetClassifier of tf-models-official, saved as by its trainer."""
    import tensorflow as tf
    from official.core import config_definitions
    from official.core import train_utils
    from official.nlp.configs import encoders
    from official.nlp.tasks import sentence_prediction

    from tests.slow.peers.model_garden_models import randomize
    from tests.slow.peers.model_garden_models import trainer_objects

    encoder = encoders.XLNetEncoderConfig(
        vocab_size=SIZES["vocab"],
        hidden_size=SIZES["width"],
        embedding_width=SIZES["width"],
        num_attention_heads=SIZES["heads"],
        head_size=SIZES["width"] // SIZES["heads"],
        inner_size=SIZES["inner"],
        num_layers=1,
    )
    task = sentence_prediction.SentencePredictionConfig(
        model=sentence_prediction.ModelConfig(
            num_classes=SIZES["classes"],
            encoder=encoders.EncoderConfig(type="xlnet", xlnet=encoder),
        )
    )
    experiment = config_definitions.ExperimentConfig(task=task)
    train_utils.serialize_config(experiment, str(directory))
    model = sentence_prediction.SentencePredictionTask(task).build_model()
    values = inputs()
    theirs = dict(
        input_word_ids=values["token_ids"],
        input_type_ids=values["segment_ids"],
        input_mask=values["padding_mask"],
    )
    model(theirs)
    logits = randomize(model)(theirs)
    objects = trainer_objects(model)
    tf.train.Checkpoint(**objects).save(str(directory / "ckpt"))
    (directory / "checkpoint").unlink()
    np.savez(directory / "expected.npz", logits=logits.numpy(), **values)


if __name__ == "__main__":
    MAKERS = {
        "bert": make_bert,
        "hugging_face": make_hugging_face,
        "model_garden": make_model_garden,
    }
    for name in sys.argv[1:] or MAKERS:
        (HERE / name).mkdir(exist_ok=True)
        MAKERS[name](HERE / name)
