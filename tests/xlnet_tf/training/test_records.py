"""`--records` with several sets: what is given, refused, said and kept."""

import pytest

from tests.support import run_fixtures
from tests.support.run_fixtures import write_configs
from xlnet_tf import train
from xlnet_tf.training import pretrain
from xlnet_tf.training.records import record_sets


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two sets of one tokenizer, `a/records` and `b/records`."""
    directory = tmp_path_factory.mktemp("sets")
    run_fixtures.write_records(directory / "a", num_sentences=120)
    run_fixtures.write_records(directory / "b", num_sentences=60)
    return directory


def read(made, *more, records=("a", "b=1"), batch_size=8):
    sets = [made / name.replace("=", "/records=") for name in records]
    sets = [x if "=" in str(x) else x / "records" for x in sets]
    argv = ["--records", *sets, "--output", made / "run", "--steps", 4]
    argv += ["--batch-size", batch_size, "--strategy", "one_device"]
    argv += [*write_configs(made / "configs"), *more]
    options = train.parse_arguments([str(x) for x in argv])
    settings = train.read_settings(options)
    data = pretrain.open_data(settings, num_replicas=1)
    identity = pretrain.identity_of(data, settings)["records"]
    return data, identity, pretrain.lines_about_records(data.train, settings)


def test_a_config_of_another_backbone_is_refused(made):
    message = "config.* is an XLNet: leave --backbone bert out"
    with pytest.raises(ValueError, match=message):
        options = ["--backbone", "bert", "--objective", "masked"]
        read(made, *options, records=["a"])


def test_weights_of_directories(tmp_path):
    (tmp_path / "x=3").mkdir()
    odd = f"{tmp_path}/x=3"
    for given, expected in (
        (["a=1"], (["a=1"], None)),
        (["a", "gs://b/c"], (["a", "gs://b/c"], None)),
        (["a=0.7", "b=x=3e-1"], (["a", "b=x"], [0.7, 0.3])),
        ([f"{odd}=2", "b=1"], ([odd, "b"], [2, 1])),
        ([odd, "b"], ([odd, "b"], None)),
    ):
        assert record_sets(given) == expected
    for given in (
        ["a=1", "b"],
        ["a=1", odd],
        ["a=1", "b=0"],
        ["a=1", "b=-1"],
        ["a=1", "b=nan"],
        ["a=1", "b=inf"],
        ["a=1", "b=much"],
        ["a=1", "b="],
        ["a=1", "a=1"],
        ["a", "a"],
        ["a", "a/"],
        ["a=", "b="],
    ):
        with pytest.raises(ValueError, match="`--records` .*Received: ") as e:
            record_sets(given)
        assert "\n" not in str(e.value)


def test_what_a_run_says_of_mixed_sets(made):
    data, kept, (first, second) = read(made, records=("a=3", "b=1"))
    assert [one.batch_size for one in data.train.sets] == [6, 2]
    assert [one.batch_size for one in data.held_out.sets] == [6, 2]
    assert "a/records: 6 rows of a batch, 75.0%; " in first
    assert "b/records: 2 rows of a batch, 25.0%; " in second
    rows = pretrain.rows_of_step(data.train, 2)
    assert len(rows) == 8 and rows[5]["set"] == str(made / "a" / "records")
    assert rows[6]["set"] == str(made / "b" / "records")
    assert kept["rows_of_sets"] == [6, 2]
    assert kept["records"] == data.train.num_records
    # Another mix is another run; one set alone is what it always was.
    for records in (("b=1", "a=3"), ("a=1", "b=1"), ("a",)):
        assert read(made, records=records)[1] != kept
    _, alone, (line,) = read(made, records=("a",))
    assert "rows of a batch" not in line
    assert "rows_of_sets" not in alone
    with pytest.raises(ValueError, match="sets of records .* mixed, 2"):
        read(made, batch_size=1, records=("a", "b"))
