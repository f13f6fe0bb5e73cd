"""Reviews as files, RACE, DREAM, SQuAD and CoNLL."""

import collections
import json
import re
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
from data_pipeline.tasks.reading import read_task


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
    write(folder / "labeledBow.feat", "0 1:1")
    others = [folder / "mixed/1_5.txt", folder / "pos/3_9.text"]
    for path in others:
        write(path, "Well.")
    message = "2 files left out, whose.* the first is .*train/mixed/1_5.txt$"
    with pytest.warns(UserWarning, match=message):
        assert read_examples("imdb", root) == expected
    for path in others:
        path.unlink()
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
        ({"options": ["AB", "CD"]}, "'AB' is not a list"),
        ({"questions": "ab"}, "'ab' is not a list"),
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
    write(path, json.dumps([["ab", [question], "5-806"]]))
    with pytest.raises(ValueError, match="not DREAM's layout.*'ab' is not a l"):
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


def test_questions_in_other_layouts(tmp_path):
    context, path = "Oaks are old.", tmp_path / "a.json"
    one = {"text": "old", "answer_start": 9}
    lists = {"text": ["old"], "answer_start": [9]}

    def nested(**more):
        questions = [{"id": n, "question": "?", **more} for n in (1, 2)]
        article = {"paragraphs": [{"context": context, "qas": questions}]}
        return {"data": [article]}, [article], article

    def flat(**more):
        rows = [{"context": context, "question": "?", **more}] * 2
        return {"version": "1", "data": rows}, rows

    for answers in (
        {"answers": [one]},
        {"answers": one},
        {"answers": lists},
        {"answer": one},
        {"answer": [one]},
        {"answer": "old", "answer_start": 9},
    ):
        for document in (*nested(**answers), *flat(**answers)):
            for indent in (None, 1):
                write(path, json.dumps(document, indent=indent))
                found = read_examples("squad-1.1", path)
                assert [x.answers for x in found] == [(Answer("old", 9),)] * 2
                assert [x.id for x in found] == ["1", "2"]
    document, *_ = nested(answers=[one])
    del document["data"][0]["paragraphs"][0]["qas"][1]["id"]
    write(path, json.dumps(document))
    message = "1 questions have no id and are numbered; the first is question 2"
    with pytest.warns(UserWarning, match=message):
        found = read_examples("squad-1.1", path)
    assert [x.id for x in found] == ["1", "2"]
    for document, message in (
        (nested(answer="old")[0], "at question 1: .*Missing: answer_start.$"),
        (flat(answer="old")[1], "row 1: .* Missing: answer_start.$"),
        (nested(answers=["old"])[0], "question 1: .*is of another kind.$"),
        (flat(answers={**lists, "text": []})[0], "row 1: .* 0 texts of answ"),
        ({"data": {"a": 1}}, "Of another kind: data"),
        ({"version": "1"}, "Missing: paragraphs"),
        ("text", "Of another kind: data"),
    ):
        write(path, json.dumps(document, indent=1))
        with pytest.raises(ValueError, match=message):
            read_examples("squad-1.1", path)


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
    for changed, message in (
        (question(1, "old", 9.5), "`answer_start` is 9.5, not a position"),
        (question(1, "old", 2**31), "`answer_start` is 2147483648, not a"),
        (question(1, "old", float("inf")), "`answer_start` is inf, not a"),
        (question(1, "old", "x"), "`answer_start` is 'x', not a position"),
        (question(1, "old", 9, is_impossible="no"), "`is_impossible` is 'no',"),
    ):
        write(path, squad(changed))
        with pytest.raises(ValueError, match=f"a.json, question q1: {message}"):
            read_examples("squad-2.0", path)
    write(path, squad(question(1, "old", 9.0, is_impossible=0)))
    (found,) = read_examples("squad-2.0", path)
    assert found.answers[0].start == 9 and found.is_impossible is False
    write(path, squad(question(1, "old", 9), question(1, "old", 9)))
    assert len(read_examples("squad-2.0", path)) == 2
    with pytest.raises(
        ValueError, match="a.json: 2 questions have the id 'q1'"
    ):
        read_examples("squad-2.0", path, "dev")
    write(
        path, squad(question(1, "old", 9)).replace('"q1"', '"q1", "id": "q2"')
    )
    with pytest.raises(ValueError, match="the key 'id' is there twice"):
        read_examples("squad-2.0", path)
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
    ):
        write(path, text)
        message = "lines of comments left out; the first is row 1"
        with pytest.warns(UserWarning, match=message):
            found = read_examples("ner", path)
        assert [x.words for x in found] == words, text
        assert [x.tags for x in found] == [("O", "B-x"), ("O", "O")]
    # A sentence without tags may hold the word too, or begin with it.
    write(path, "# sent_id = 1\n#\na\n\na\n#\n")
    with pytest.warns(UserWarning, match="1 lines of comments"):
        found = read_examples("ner", path, "test")
    assert [x.words for x in found] == [("#", "a"), ("a", "#")]
    write(path, "# O\nNo B-x\n\n#2 O\nYes O\n##a O\n")
    found = read_examples("ner", path)
    assert [x.words for x in found] == [words[0], ("#2", "Yes", "##a")]
    # They may stand within a sentence, and have tabs.
    comments = (
        *("#\ta.example of 1. 2. 2003\t[2003-02-01]", "# a", "#", "## a note"),
        *("#begin document (a/b); part 000", "#end document", "# text = O"),
        *("# newdoc", "#note that this is long", "# a b O"),
    )
    for comment in comments:
        for text in (
            "{0}\nNo\tB-x\n#\tO\n\nYes\tO\n",
            "No\tB-x\n{0}\n#\tO\n\nYes\tO\n",
            "No B-x\n{0}\n# O\n{0}\n\n{0}\nYes O\n{0}\n",
        ):
            write(path, text.format(comment))
            row = 1 + text.startswith("No")
            message = f"[14] lines of comments left.* the first is row {row}$"
            with pytest.warns(UserWarning, match=message):
                found = read_examples("ner", path)
            assert [x.words for x in found] == [("No", "#"), ("Yes",)], comment
    # A word without its tag, or with a wrong one, is no comment.
    for line in ("#a", "#a B_x", "#a\tb"):
        write(path, f"No B-x\nYes\tO\n{line}\n")
        with pytest.raises(ValueError, match="row 3"):
            read_examples("ner", path)


def test_columns_that_hold_no_words_are_named(tmp_path):
    path = tmp_path / "a.conll"
    words = ["Alba", "sings", "in", "Turku"]

    def written(first, separator="\t"):
        lines = [
            separator.join([*first(sentence, index), word, "O"])
            + ("\n" if index == len(words) - 1 else "")
            for sentence in range(4)
            for index, word in enumerate(words)
        ]
        write(path, "\n".join([*lines, ""]))

    for first, why, column in (
        (lambda s, i: [str(i + 1)], "count up, the first being '1'", 1),
        (lambda s, i: [str(4 * s + i)], "count up", 1),
        (lambda s, i: [f"s{s}-{i}"], "count up, the first being 's0-0'", 1),
        (lambda s, i: [f"{7 * i % 5}:{s}"], "have no letter", 1),
        (lambda s, i: ["a/b_1"], "are the same throughout a sentence", 1),
        (lambda s, i: [f"d{s}", "0", str(i)], "are the same", 3),
    ):
        for separator in ("\t", " "):
            written(first, separator)
            message = f"column 0 .*{why}.* --columns words={column}$"
            with pytest.warns(UserWarning, match=message):
                found = read_examples("ner", path)
            assert len(found) == 4
            columns = f"words={column}"
            found = read_examples("ner", path, columns=columns)
            assert [x.words for x in found] == [tuple(words)] * 4
    write(path, "".join(f"w{n * 7 % 200}\tB-x\n\n" for n in range(200)))
    with pytest.warns(UserWarning, match="never occur again.*words=NUMBER"):
        read_examples("ner", path)
    written(lambda sentence, index: [])
    read_examples("ner", path)
    write(path, "1\tO\n2\tO\n\nof\tO\n3\tO\n4\tO\n\n")
    read_examples("ner", path)


def test_lines_of_conll_that_are_odd_are_counted(tmp_path):
    path = tmp_path / "a.conll"
    one = "Alba B-PER\nsings O\n"
    for text, message, sentences in (
        # Joined files, perhaps without a line between them.
        (f"\ufeff{one}\n\ufeff{one}", "1 lines begin with a byte.* row 4$", 2),
        (f"\ufeff{one}\ufeff{one}", "1 lines begin with a byte.* row 3$", 2),
        (f"{one * 15}New York B-LOC\n", "1 lines have more or.* row 31$", 1),
        (f'{one * 15}\n"""" O\n', "1 lines have words in quotes.*32$", 2),
    ):
        write(path, text)
        with pytest.warns(UserWarning) as told:
            found = read_examples("ner", path)
        assert any(re.search(message, str(x.message)) for x in told), text
        assert len(found) == sentences
        assert found[0].words[:2] == ("Alba", "sings")
    write(path, one * 30)
    message = (
        "no blank line divides sentences, and all 60 words are read as one"
    )
    with pytest.warns(UserWarning, match=message):
        read_examples("ner", path)
    write(path, "Alba O\n\nsings O\n")
    with pytest.warns(
        UserWarning, match="no other tag than O|another tag than"
    ):
        read_task("ner", path)


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
