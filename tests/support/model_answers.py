"""Write the results of every method of a model on raw strings to JSON.

    python -m tests.support.model_answers MODEL FILE

Tests compare the files of two backends of Keras.
"""

import json
import sys

import numpy as np

import xlnet_tf
from data_pipeline.tasks.examples import TextExample
from tests.support.samples import tiny_sentences
from xlnet_tf.tasks import kind_of
from xlnet_tf.tasks import task_kind
from xlnet_tf.training.results.influence import influence_of_words


def main(argv):
    model, file = argv
    model = xlnet_tf.load(model)
    texts = list(tiny_sentences(4))
    if hasattr(model, "score"):
        answers = _of_pretrained(model, texts)
    elif hasattr(model, "answer"):
        found = model.answer(texts, texts[::-1])
        answers = [[x["text"], x["score"], x["null_score"]] for x in found]
    elif kind_of(model) == "token_classification":
        # Batches of different widths.
        preprocessor = model.preprocessor.with_settings(pad_to_longest=True)
        model.preprocessor = preprocessor
        words = [x.split()[: 2 + 3 * row] for row, x in enumerate(texts)]
        answers = [model.predict_labels(words, batch_size=2)]
    else:
        answers = [np.asarray(model.predict(texts, verbose=0)).tolist()]
        answers.append(list(map(str, model.predict_labels(texts))))
        kind = task_kind(kind_of(model))(model)
        examples = [TextExample("", text) for text in texts]
        weights = np.eye(len(model.labels), dtype="float32")[[0, 1, 0, 1]]
        found = influence_of_words(kind, examples, model.labels, weights)
        answers.append([list(map(list, words)) for words in found])
    with open(file, "w", encoding="utf-8") as handle:
        json.dump(answers, handle)
    return 0


def _of_pretrained(model, texts):
    words = texts[0].split()
    settings = {"max_new_tokens": 9, "min_new_tokens": 3, "batch_size": 2}
    answers = [
        model.generate(texts, **settings, **more)
        for more in (
            {},
            {"no_repeat_ngram": 2, "repetition_penalty": 1.5},
            {"sample": True, "num_sequences": 2, "seed": 3, "stop": [words[0]]},
            {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
        )
    ]
    answers.append([*model.text_generator(**settings).stream([20, 30])])
    scores = [model.score(texts, "forward")]
    if model.objectives[0].fills_blanks:
        scores.append(model.score(texts, "random", 2))
        found = model.fill([f"{words[0]} <mask:1-2> {words[1]} <mask>"])
        answers.append([[x.parts, x.log_probability] for x in found])
    answers += [[x.log_probability for x in of_texts] for of_texts in scores]
    return answers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
