"""Public names, which `__init__.py` imports when they are first used."""

from . import objectives as objectives
from . import pictures as pictures
from .config import BertConfig as BertConfig
from .config import XLNetConfig as XLNetConfig
from .loading import load as load
from .model.backbone import XLNetBackbone as XLNetBackbone
from .model.bert.backbone import BertBackbone as BertBackbone
from .model.memory import StatefulMemory as StatefulMemory
from .objectives.pretrainer import XLNetPretrainer as XLNetPretrainer
from .optimizer import AdamW as AdamW
from .optimizer import WarmupSchedule as WarmupSchedule
from .preprocessing.choices import (
    XLNetMultipleChoicePreprocessor as XLNetMultipleChoicePreprocessor,
)
from .preprocessing.choices import (
    XLNetRankerPreprocessor as XLNetRankerPreprocessor,
)
from .preprocessing.questions import (
    XLNetQuestionAnsweringPreprocessor as XLNetQuestionAnsweringPreprocessor,
)
from .preprocessing.seq2seq import (
    XLNetSeq2SeqPreprocessor as XLNetSeq2SeqPreprocessor,
)
from .preprocessing.texts import (
    XLNetTextClassifierPreprocessor as XLNetTextClassifierPreprocessor,
)
from .preprocessing.tokens import (
    XLNetTokenClassifierPreprocessor as XLNetTokenClassifierPreprocessor,
)
from .tasks.choices import XLNetMultipleChoice as XLNetMultipleChoice
from .tasks.choices import XLNetRanker as XLNetRanker
from .tasks.multi_label_classifier import (
    XLNetMultiLabelClassifier as XLNetMultiLabelClassifier,
)
from .tasks.question_answering import (
    XLNetQuestionAnswering as XLNetQuestionAnswering,
)
from .tasks.question_answering import XLNetSpanClassifier as XLNetSpanClassifier
from .tasks.seq2seq import XLNetSeq2Seq as XLNetSeq2Seq
from .tasks.text_classifier import XLNetTextClassifier as XLNetTextClassifier
from .tasks.text_regressor import XLNetTextRegressor as XLNetTextRegressor
from .tasks.token_classifier import XLNetTokenClassifier as XLNetTokenClassifier
from .version import __version__ as __version__
