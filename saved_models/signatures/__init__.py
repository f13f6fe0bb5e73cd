"""The functions an export serves, by the class of the model.

Only TensorFlow's own ops and SentencePiece's are used, so that TensorFlow
Serving and the C runtime load the result with nothing of ours installed.
Importing this package imports TensorFlow Text.
"""

import xlnet_tf
from saved_models.signatures.choices import ChoiceSignatures
from saved_models.signatures.choices import RankerSignatures
from saved_models.signatures.embedding import EmbeddingSignatures
from saved_models.signatures.fill_in import PretrainerSignatures
from saved_models.signatures.questions import QuestionSignatures
from saved_models.signatures.texts import ClassifierSignatures
from saved_models.signatures.texts import RegressorSignatures
from saved_models.signatures.tokens import TaggerSignatures

# model class -> its signatures; of several that fit the first is taken
SIGNATURES = {
    xlnet_tf.XLNetPretrainer: PretrainerSignatures,
    xlnet_tf.XLNetBackbone: EmbeddingSignatures,
    xlnet_tf.XLNetTextClassifier: ClassifierSignatures,
    xlnet_tf.XLNetTextRegressor: RegressorSignatures,
    xlnet_tf.XLNetRanker: RankerSignatures,
    xlnet_tf.XLNetMultipleChoice: ChoiceSignatures,
    xlnet_tf.XLNetTokenClassifier: TaggerSignatures,
    xlnet_tf.XLNetQuestionAnswering: QuestionSignatures,
}


def signatures_for(model):
    """The class of signatures that serves a model.

    Args:
        model: XLNetBackbone or a task.

    Returns:
        subclass of `ModelSignatures`.

    Raises:
        ValueError: if models of this class cannot be exported.
    """
    for kind, signatures in SIGNATURES.items():
        if isinstance(model, kind):
            return signatures
    known = ", ".join(kind.__name__ for kind in SIGNATURES)
    raise ValueError(
        f"a {type(model).__name__} cannot be exported; these can: {known}."
    )
