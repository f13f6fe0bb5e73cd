"""Signatures of an export, chosen by the class of the model.

Signatures use only the ops of TensorFlow and SentencePiece, so that TensorFlow
Serving and the C runtime can load an export without this library.
"""

import importlib

import keras

# From the class of a model to the class of its signatures.
SIGNATURES = {
    "XLNetPretrainer": "fill_in.PretrainerSignatures",
    "XLNetBackbone": "embedding.EmbeddingSignatures",
    "BertBackbone": "embedding.EmbeddingSignatures",
    "XLNetTextClassifier": "texts.ClassifierSignatures",
    "XLNetMultiLabelClassifier": "texts.MultiLabelSignatures",
    "XLNetTextRegressor": "texts.RegressorSignatures",
    "XLNetRanker": "choices.RankerSignatures",
    "XLNetMultipleChoice": "choices.ChoiceSignatures",
    "XLNetSeq2Seq": "seq2seq.Seq2SeqSignatures",
    "XLNetTokenClassifier": "tokens.TaggerSignatures",
    "XLNetQuestionAnswering": "questions.QuestionSignatures",
}


def signatures_for(model):
    """Find the subclass of `ModelSignatures` for a model.

    Args:
        model: a backbone or a task. If `SIGNATURES` lacks the model's class,
            the model has the signatures of the nearest base class in
            `SIGNATURES`.

    Returns:
        subclass of `ModelSignatures`.

    Raises:
        ValueError: if models of this class cannot be exported.
    """
    for cls in type(model).__mro__:
        package, _, name = keras.saving.get_registered_name(cls).partition(">")
        if package == "xlnet_tf" and name in SIGNATURES:
            module, name = SIGNATURES[name].split(".")
            module = importlib.import_module(f"{__name__}.{module}")
            return getattr(module, name)
    raise ValueError(
        f"a {type(model).__name__} cannot be exported; these can: "
        f"{', '.join(SIGNATURES)}."
    )
