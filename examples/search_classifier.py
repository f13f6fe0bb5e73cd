"""Search for the best settings of a text classifier with KerasTuner.

    pip install keras-tuner
    python examples/search_classifier.py --data reviews.csv \\
        --preset xlnet_tiny_en --output runs/search --trials 12

The CSV file has the columns `label` and `text`. If a search was stopped, the
same command resumes the search. At the end the program prints the best accuracy
and the command that fine-tunes a model with the best settings.
"""

import importlib.util
import pathlib
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline.base import command_line  # noqa: E402

MOST_EPOCHS = 4


def parse_arguments(argv=None):
    """Parse the options of the command."""
    parser = command_line.Parser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data", required=True, metavar="FILE", help="CSV or JSON lines")
    add("--preset", required=True, metavar="DIR", help="pretrained model")
    add("--output", required=True, metavar="DIR")
    add("--trials", type=int, default=12, help="settings to try (default 12)")
    add("--sequence-length", type=int, default=128, help="default 128")
    add("--seed", type=int, default=0)
    return command_line.parse(parser, argv)


def read(data, seed):
    """Read a table; return training data, held-out data and class names.

    The training data and the held-out data are tuples (texts, labels).
    """
    from data_pipeline.tasks.reading import read_examples
    from data_pipeline.tasks.splitting import hold_out

    examples = read_examples("classification", data)
    parts = hold_out(examples, 0.2, seed)
    names = sorted({example.label for example in examples})
    return (
        *(([x.text for x in part], [x.label for x in part]) for part in parts),
        names,
    )


def make_search(preset, names, num_examples, sequence_length):
    """Make the keras_tuner.HyperModel that defines the searched settings."""
    import keras_tuner

    import xlnet_tf

    class Search(keras_tuner.HyperModel):
        def build(self, hp):
            batch_size = hp.Choice("batch_size", [8, 16, 32], default=16)
            epochs = hp.Int("epochs", 1, MOST_EPOCHS, default=2)
            steps = epochs * -(-num_examples // batch_size)
            model = xlnet_tf.XLNetTextClassifier.from_preset(
                preset,
                labels=names,
                dropout=hp.Choice("dropout", [0.0, 0.1, 0.2], default=0.1),
            )
            if model.preprocessor is None:
                raise ValueError(f"there is no tokenizer in {preset}.")
            model.preprocessor.sequence_length = sequence_length
            schedule = xlnet_tf.WarmupSchedule(
                hp.Float("learning_rate", 1e-5, 1e-3, sampling="log"),
                total_steps=steps,
                warmup_steps=steps // 10,
            )
            model.compile(
                optimizer=xlnet_tf.AdamW(
                    schedule,
                    global_clipnorm=1.0,
                    layer_decay=hp.Choice("layer_decay", [0.8, 1.0]),
                )
            )
            return model

        def fit(self, hp, model, *arguments, **options):
            options["epochs"] = hp.get("epochs")
            options["batch_size"] = hp.get("batch_size")
            return model.fit(*arguments, **options)

    return Search()


def main(argv=None):
    """Run the command; see the module docstring."""
    arguments = parse_arguments(argv)
    if importlib.util.find_spec("keras_tuner") is None:
        raise ValueError("KerasTuner is missing: pip install keras-tuner")
    if arguments.trials < 1:
        raise ValueError(
            f"--trials must be 1 or more. Received: {arguments.trials}."
        )
    import keras_tuner

    training, held_out, names = read(arguments.data, arguments.seed)
    search = make_search(
        arguments.preset, names, len(training[0]), arguments.sequence_length
    )
    # Build a model first: KerasTuner would report a wrong preset only as a
    # failed trial.
    search.build(keras_tuner.HyperParameters())
    tuner = keras_tuner.BayesianOptimization(
        search,
        objective=keras_tuner.Objective("val_accuracy", "max"),
        max_trials=arguments.trials,
        seed=arguments.seed,
        directory=arguments.output,
        project_name="search",
    )
    tuner.search(*training, validation_data=held_out, verbose=2)
    best = tuner.oracle.get_best_trials()[0]
    print(f"best: accuracy {best.score:.3f} of {len(held_out[0])} held out")
    command = ["python", "-m", "xlnet_tf.finetune", "--task", "classification"]
    command += ["--data", arguments.data, "--preset", arguments.preset]
    command += ["--sequence-length", str(arguments.sequence_length)]
    command += ["--seed", str(arguments.seed), "--output", "runs/best"]
    for name, value in best.hyperparameters.values.items():
        command += [f"--{name.replace('_', '-')}", f"{value:g}"]
    print(shlex.join(command))
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
