"""Reviews as files, RACE, DREAM, SQuAD and CoNLL."""

import collections
import json
import warnings
import zipfile

import pytest

from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tasks.readers.conll import convert_iob1
from data_pipeline.tasks.reading import find_split
from data_pipeline.tasks.reading import is_labelled
from data_pipeline.tasks.reading import read_examples


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def zipped(directory, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in directory.rglob("*"):
            archive.write(file, file.relative_to(directory))
    return path


def test_reviews(tmp_path):
    root = tmp_path / "data"
    folder = root / "aclImdb/train"
    write(folder / "pos/10_9.txt", " Good.<br /><br />Really. \n")
    write(folder / "pos/9_8.txt", "Fine.")
    write(folder / "neg/2_1.txt", "Bad.")
    write(folder / "unsup/1_0.txt", "Whatever.")
    write(folder / "pos/._9_8.txt", b"\xff")
    expected = [
        TextExample("neg/2_1", "Bad.", None, "neg", "train/neg/2_1.txt"),
        TextExample("pos/9_8", "Fine.", None, "pos", "train/pos/9_8.txt"),
        TextExample(
            "pos/10_9", "Good.  Really.", None, "pos", "train/pos/10_9.txt"
        ),
    ]
    for path in (root, root / "aclImdb", zipped(root, tmp_path / "x.zip")):
        assert read_examples("imdb", path) == expected
        assert find_split("imdb", path, "train").endswith("train")
        assert find_split("imdb", path, "test") is None
    with pytest.raises(FileNotFoundError, match="archive with train"):
        read_examples("imdb", folder / "pos/9_8.txt")
    write(folder / "pos/9_8.txt", b"ok\nb\xe4d")
    with pytest.raises(ValueError, match="9_8.txt, row 2: the file is not UTF"):
        read_examples("imdb", root)
    (folder / "neg/2_1.txt").unlink()
    with pytest.raises(ValueError, match="no .txt file in the folder neg"):
        read_examples("imdb", root)


ARTICLE = {
    "id": "middle1.txt",
    "article": "A text.",
    "questions": ["What _ ?", "Who?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["D", "A"],
}


def test_race(tmp_path):
    folder = tmp_path / "data/RACE/train"
    write(folder / "middle/1.txt", json.dumps(ARTICLE))
    write(folder / "high/2.txt", json.dumps(ARTICLE | {"id": "high2.txt"}))
    write(folder / "high/._2.txt", b"\xff")
    for path in (
        tmp_path / "data",
        tmp_path / "data/RACE",
        zipped(tmp_path / "data", tmp_path / "x.zip"),
    ):
        found = read_examples("race", path)
        assert [one.group for one in found] == ["high"] * 2 + ["middle"] * 2
        assert found[3] == ChoiceExample(
            "middle1.txt/1",
            "A text.",
            "Who?",
            ("e", "f", "g", "h"),
            0,
            "middle",
            "train/middle/1.txt, question 2",
        )
        assert found[2].answer == 3
        with pytest.raises(FileNotFoundError, match="no test split"):
            read_examples("race", path, "test")


def test_bad_race(tmp_path):
    for change, message in (
        ({"answers": ["D", "E"]}, "question middle1.txt/1 is option 5 of 4"),
        ({"answers": ["D", "no"]}, "answer of question 2 is 'no', not a let"),
        ({"answers": ["D"]}, "not RACE's layout"),
        ({"answers": []}, "not RACE's layout"),
        ({"options": [["a", "b"], ["c"]], "answers": "AA"}, "fewer than two"),
        ({"options": [["a", "b"]]}, "not RACE's layout"),
        ({"article": None}, "None is not a text"),
    ):
        write(tmp_path / "train/high/1.txt", json.dumps(ARTICLE | change))
        with pytest.raises(ValueError, match=message) as caught:
            read_examples("race", tmp_path)
        assert "1.txt" in str(caught.value)


def test_race_without_answers_is_for_a_test(tmp_path):
    article = {key: ARTICLE[key] for key in ARTICLE if key != "answers"}
    write(tmp_path / "test/high/1.txt", json.dumps(article))
    assert [x.answer for x in read_examples("race", tmp_path, "test")] == [
        None,
        None,
    ]
    write(tmp_path / "train/high/1.txt", "{")
    with pytest.raises(ValueError, match="1.txt, row 1: broken JSON"):
        read_examples("race", tmp_path)


def test_dream(tmp_path):
    question = {"question": "Where?", "choice": ["a", "b", "c"], "answer": "b"}
    dialogue = [["M: Hi.", "W: Ho."], [question, question], "5-806"]
    path = write(tmp_path / "data/train.json", json.dumps([dialogue]))
    assert read_examples("dream", tmp_path)[1] == ChoiceExample(
        "5-806/1",
        "M: Hi.\nW: Ho.",
        "Where?",
        ("a", "b", "c"),
        1,
        where="train.json, dialogue 5-806, question 2",
    )
    question["answer"] = "d"
    write(path, json.dumps([dialogue]))
    with pytest.raises(ValueError, match="5-806, question 1: the answer 'd'"):
        read_examples("dream", tmp_path)
    del question["choice"]
    write(path, json.dumps([dialogue]))
    with pytest.raises(ValueError, match="not DREAM's layout.*'choice'"):
        read_examples("dream", tmp_path)
    write(path, "[]")
    with pytest.raises(ValueError, match="holds no questions"):
        read_examples("dream", tmp_path)


def squad(*questions):
    paragraph = {"context": "Oaks are old trees.", "qas": list(questions)}
    return json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}]})


def question(number, text, start, **more):
    answers = [{"text": text, "answer_start": start}]
    return {"id": f"q{number}", "question": "?", "answers": answers, **more}


def test_squad(tmp_path):
    good = question(1, "old", 9)
    none = {"id": "q2", "question": "?", "answers": [], "is_impossible": True}
    plausible = question(3, "old", 9, is_impossible=True)
    write(tmp_path / "train-v2.0.json", squad(good, none, plausible))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_examples("squad-2.0", tmp_path)
    context = "Oaks are old trees."
    assert found == [
        QuestionExample(
            "q1",
            context,
            "?",
            (Answer("old", 9),),
            False,
            "T",
            "train-v2.0.json, question q1",
        ),
        QuestionExample(
            "q2", context, "?", (), True, "T", "train-v2.0.json, question q2"
        ),
        QuestionExample(
            "q3", context, "?", (), True, "T", "train-v2.0.json, question q3"
        ),
    ]
    assert find_split("squad-1.1", tmp_path, "train") is None
    for split in ("train", "test"):
        with pytest.raises(ValueError, match="q2: it is marked .* squad-2.0"):
            read_examples("squad-1.1", tmp_path / "train-v2.0.json", split)


def test_questions_a_line(tmp_path):
    """Flat, as `datasets` writes them, or with the answers of the layout."""
    one = {"context": "Oaks are old.", "question": "?", "title": "T"}
    answers = {"text": ["old", "Oaks"], "answer_start": [9, 0]}
    rows = [
        {**one, "answers": answers, "id": "a"},
        {**one, "answers": [{"text": "old", "answer_start": 9}]},
        {**one, "answers": {"text": [], "answer_start": []}},
    ]
    path = tmp_path / "a.jsonl"

    def write_rows(*rows):
        write(path, "\n".join(map(json.dumps, rows)) + "\n\n")

    write_rows(*rows)
    found = read_examples("squad-2.0", path)
    assert [x.id for x in found] == ["a", "2", "3"]
    assert [x.answers for x in found] == [
        (Answer("old", 9), Answer("Oaks", 0)),
        (Answer("old", 9),),
        (),
    ]
    assert [x.is_impossible for x in found] == [False, False, True]
    assert (found[0].title, found[0].context) == ("T", one["context"])
    write_rows({**rows[0], "title": None})
    assert read_examples("squad-2.0", path)[0].title == ""
    write_rows(*rows)
    with pytest.raises(ValueError, match="question 3: it has no answers"):
        read_examples("squad-1.1", path)
    write_rows(*rows[:2], one)
    with pytest.raises(ValueError, match="question 3: it has no answers"):
        read_examples("squad-2.0", path)
    assert not read_examples("squad-2.0", path, "test")[2].is_impossible
    for wrong in ([], {"question": "?"}, {**one, "answers": {"text": ["a"]}}):
        write_rows(rows[0], wrong)
        message = "a.jsonl, row 2: not a question in a line"
        with pytest.raises(ValueError, match=message):
            read_examples("squad-2.0", path)
    for text, message in (
        (json.dumps(one) + "\n{", "row 2: broken JSON"),
        ('{"data": [', "row 1: broken JSON"),  # cut off
        ("\n", "a.jsonl: the file is empty"),
    ):
        write(path, text)
        with pytest.raises(ValueError, match=message):
            read_examples("squad-2.0", path)


# What the files hold where an annotator gave none.
NO_TEXTS = ("", " ", "\t\n", "\u200b", "\u3000", None)


def test_answers_without_text_are_none(tmp_path):
    path = tmp_path / "a.json"
    good = question(1, "old", 9)
    for text in NO_TEXTS:
        for start in (0, -1, None):
            none = question(2, text, start, is_impossible=False)
            mixed = question(3, text, start)
            mixed["answers"] *= 2
            mixed["answers"].insert(1, *good["answers"])
            write(path, squad(good, none, mixed))
            message = "a.json: 3 answers have no text .*, 1 ques.* question q2"
            with pytest.warns(UserWarning, match=message) as told:
                found = read_examples("squad-2.0", path)
            assert len(told) == 1
            assert [x.is_impossible for x in found] == [False, True, False]
            kept = (Answer("old", 9),)
            assert [x.answers for x in found] == [kept, (), kept]
            with pytest.raises(ValueError, match="question q2: its answers"):
                read_examples("squad-1.1", path)
            for task in ("squad-1.1", "squad-2.0"):  # as without answers
                with pytest.warns(UserWarning, match="3 answers have no text"):
                    found = read_examples(task, path, "test")
                assert [is_labelled(x) for x in found] == [True, False, True]
            write(path, squad(good, mixed))
            with pytest.warns(UserWarning, match="2 answers .* 0 questions"):
                found = read_examples("squad-1.1", path)
            assert [x.answers for x in found] == [kept, kept]


def test_flat_answers_without_text_are_none(tmp_path):
    one = {"context": "Oaks are old.", "question": "?"}
    path = tmp_path / "a.jsonl"
    for text in NO_TEXTS:
        rows = [
            {**one, "answers": {"text": ["old"], "answer_start": [9]}},
            {**one, "answers": {"text": [text], "answer_start": [0]}},
            {**one, "answers": [{"text": text, "answer_start": 0}]},
            {**one, "answers": {"text": [text, "old"], "answer_start": [0, 9]}},
        ]
        write(path, "\n".join(map(json.dumps, rows)))
        message = "3 answers have no text .*, 2 questions .* of question 2"
        with pytest.warns(UserWarning, match=message):
            found = read_examples("squad-2.0", path)
        assert [x.is_impossible for x in found] == [False, True, True, False]
        assert [len(x.answers) for x in found] == [1, 0, 0, 1]
        with pytest.raises(ValueError, match="question 2: its answers have no"):
            read_examples("squad-1.1", path)


def test_misplaced_answers_are_kept_and_told(tmp_path):
    questions = [
        question(1, "old", 9),
        question(2, "old", 8),
        question(3, "young", 9),
        question(4, "Oaks", -19),
    ]
    path = write(tmp_path / "a.json", squad(*questions))
    message = "3 answers do not stand.*1 of them nowhere.*of question q2"
    with pytest.warns(UserWarning, match=message):
        assert len(read_examples("squad-1.1", path)) == 4


def test_bad_squad(tmp_path):
    missing = {"id": "q7", "question": "?"}
    path = write(tmp_path / "a.json", squad(question(1, "old", 9), missing))
    assert read_examples("squad-1.1", path, "test")[1].answers == ()
    with pytest.raises(ValueError, match="a.json, question q7: it has no ans"):
        read_examples("squad-1.1", path)
    write(path, squad({"id": "q8", "answers": []}))
    with pytest.raises(ValueError, match="question q8: not SQuAD's layout"):
        read_examples("squad-1.1", path)
    for text in ("[]", '{"data": [{"title": "T"}]}'):
        write(path, text)
        with pytest.raises(ValueError, match="not SQuAD's layout"):
            read_examples("squad-1.1", path)
    write(path, '{"data":\n[}')
    with pytest.raises(ValueError, match="row 2: broken JSON"):
        read_examples("squad-1.1", path)
    write(path, '{"data": []}')
    with pytest.raises(ValueError, match="holds no questions"):
        read_examples("squad-1.1", path)


CONLL = (
    "-DOCSTART- -X- O O\r\n\r\nEU NNP I-NP I-ORG\r\nBonn NNP I-NP I-LOC\r\n"
    "Rome NNP I-NP B-LOC\r\n\r\n\r\nHe  PRP I-NP O\r\n"
)


def test_conll_2003(tmp_path):
    write(tmp_path / "eng.train", CONLL)
    assert read_examples("conll-2003", tmp_path) == [
        TokensExample(
            "0",
            ("EU", "Bonn", "Rome"),
            ("B-ORG", "B-LOC", "B-LOC"),
            "eng.train, row 3",
        ),
        TokensExample("1", ("He",), ("O",), "eng.train, row 8"),
    ]
    # Tags of your own stay what they are, from any column.
    path = tmp_path / "eng.train"
    assert read_examples("ner", path)[0].tags == ("I-ORG", "I-LOC", "B-LOC")
    found = read_examples("ner", path, columns="words=1,tags=2")
    assert found[0].words == ("NNP",) * 3 and found[1].tags == ("I-NP",)


def test_words_with_odd_blanks(tmp_path):
    path = write(
        tmp_path / "a.conll", "a b\tO\nno\u00a0break\tB-x\n\t\n\nc O\n"
    )
    found = read_examples("ner", path)
    assert [one.words for one in found] == [("a b", "no\u00a0break"), ("c",)]


def test_comments_are_no_words(tmp_path):
    path = tmp_path / "a.conll"
    words = [("#", "No"), ("#2", "Yes")]
    for text in (
        # MultiCoNER, Universal NER, CoNLL-U
        "# id 5239\tdomain=en\n#\tO\nNo\tB-x\n\n# id 7\n#2\tO\nYes\tO\n",
        "# newdoc\n# sent_id = 1\n# text = # No B-12\n# _ _ O\nNo _ _ B-x\n\n"
        "#2 _ _ O\nYes _ _ O\n",
        "# newdoc id = a-b\n# text =\n#\tO\nNo\tB-x\n\n#2\tO\nYes\tO\n",
        "# O\nNo B-x\n\n#2 O\nYes O\n",
    ):
        write(path, text)
        found = read_examples("ner", path)
        assert [x.words for x in found] == words, text
        assert [x.tags for x in found] == [("O", "B-x"), ("O", "O")]
    # A sentence without tags may hold the word too, or begin with it.
    write(path, "# sent_id = 1\n#\na\n\na\n#\n")
    found = read_examples("ner", path, "test")
    assert [x.words for x in found] == [("#", "a"), ("a", "#")]


def test_lines_of_words_that_end_with_carriage_returns(tmp_path):
    path = write(tmp_path / "a.conll", "EU B-ORG\rsays O\r\rHi O\r")
    with pytest.raises(ValueError, match="row 1: a carriage return within"):
        read_examples("ner", path)
    write(path, "EU B-ORG\r\nsays O\r\n\r\nHi O\r\n")
    assert [len(x.words) for x in read_examples("ner", path)] == [2, 1]


def test_iob1_by_seqeval():
    from seqeval.metrics.sequence_labeling import get_entities

    tags = "I-a I-a B-a I-a O I-b I-a O B-b I-b".split()
    converted = convert_iob1(tags)
    assert converted == "B-a I-a B-a I-a O B-b B-a O B-b I-b".split()
    assert get_entities(converted) == get_entities(tags)
    assert convert_iob1(converted) == converted


def test_bad_conll(tmp_path):
    path = tmp_path / "a.conll"
    for task, text, message in (
        ("ner", "a O\nb\n", "row 2: 1 fields"),
        ("ner", "a\n", "row 1: 1 fields"),
        ("ner", "text,label\r\n", "a table .*CoNLL.*Received: text,label$"),
        ("ner", '{"text":"a"}\n', "row 1: this looks like a table"),
        ("ner", ",\n", "row 1: 1 fields"),
        ("ner", "a\tO\nb\t\n", "row 2: the tag of 'b' is empty"),
        ("ner", "a\tO\n\tO\n", "row 2: the word is empty"),
        ("ner", "a B-x\nb 1\n", "row 2: the tag '1' is neither O nor"),
        ("wnut-17", "a\tB-PER\n", "row 1: the tag 'B-PER' is not one of"),
        ("ner", "\n-DOCSTART-\n", "holds no sentences"),
        ("ner", b"a\tO\n\xff\tO\n", "row 2: the file is not UTF-8"),
    ):
        write(path, text)
        with pytest.raises(ValueError, match=message) as caught:
            read_examples(task, path)
        assert "a.conll" in str(caught.value)
    write(path, "a O\n")
    for columns, message in (
        ("tags=ner", "numbers from 0.*tags=ner"),
        ("tags=5", "the tag in column 5"),
    ):
        with pytest.raises(ValueError, match=message):
            read_examples("ner", path, columns=columns)


def test_a_test_may_have_words_only(tmp_path):
    path = write(tmp_path / "a.conll", "a\nb\n\nc\n")
    found = read_examples("ner", path, "test")
    assert [(x.words, x.tags) for x in found] == [
        (("a", "b"), None),
        (("c",), None),
    ]


def test_real_wnut(shared):
    for split, sentences, words in (
        ("train", 3394, 62730),
        ("dev", 1009, 15733),
    ):
        found = read_examples("wnut-17", shared / "data", split)
        assert len(found) == sentences
        assert sum(len(one.words) for one in found) == words
        assert all(len(one.words) == len(one.tags) for one in found)
    tags = collections.Counter(tag for one in found for tag in one.tags)
    assert tags["B-person"] == 470 and tags["I-creative-work"] == 133


def test_real_squad(shared):
    for task, file, questions, impossible, answers in (
        ("squad-1.1", "train-v1.1.44articles", 11877, 0, 11877),
        ("squad-1.1", "dev-v1.1.partA", 4961, 0, 17778),
        ("squad-2.0", "dev-v2.0.partA", 6440, 3363, 11631),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of misplaced answers
            found = read_examples(task, shared / f"data/squad/{file}.json")
        assert len(found) == len({x.id for x in found}) == questions
        assert sum(x.is_impossible for x in found) == impossible
        assert sum(len(x.answers) for x in found) == answers
