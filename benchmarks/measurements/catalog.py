"""List of all measurements, in the order of the results."""

from benchmarks.measurements import data
from benchmarks.measurements import inference
from benchmarks.measurements import training


def all_measurements(sizes, files):
    """Make all measurements.

    Args:
        sizes: Sizes of `workload.sizes`.
        files: dict with the paths of `text`, `tokenizer` and `directory`. The
            files need not exist yet.

    Returns:
        list of Measurement.
    """
    return [
        training.training_step(sizes, sizes.memory_length),
        training.training_step(sizes, 0),
        training.objective_step(sizes),
        training.pseudo_masks(sizes),
        *(inference.inference(sizes, *shape) for shape in sizes.inference),
        *(inference.generation(sizes, length) for length in sizes.prompts),
        *(
            inference.long_document(sizes, length)
            for length in sizes.document_lengths
        ),
        training.fine_tuning(sizes, *sizes.fine_tuning),
        data.reading(sizes, files),
        data.record_building(sizes, files),
        data.tokenizing(sizes, files),
        data.question_features(sizes, files),
        inference.export(sizes, files, *sizes.export),
        *(
            inference.runtimes(sizes, files, *shape)
            for shape in sizes.inference
        ),
    ]
