"""Records read by several workers, or by a tf.data service."""

import time

import pytest
import tensorflow as tf

from data_pipeline.base.files import read_json_lines
from data_pipeline.pretraining import PretrainingData
from tests.support.equality import assert_equal
from tests.support.record_fixtures import RECORDS
from tests.support.record_fixtures import numbers
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records") / "set"
    write_set(directory)
    return directory


@pytest.mark.parametrize(("workers", "batch"), [(1, 37), (3, 12)])
def test_workers_share_every_record_once(directory, workers, batch):
    """In an epoch, for any number of workers that share a step."""
    data = PretrainingData(directory, batch)
    rows = batch // workers
    for epoch in range(2):
        read = [
            number
            for worker in range(workers)
            for element in take(
                data,
                data.steps_per_epoch,
                start_step=epoch * data.steps_per_epoch,
                first_row=worker * rows,
                num_rows=rows,
            )
            for number in numbers(element)
        ]
        assert len(read) == len(set(read)) == RECORDS // batch * batch
        if RECORDS % batch == 0:
            assert sorted(read) == list(range(RECORDS))


@pytest.fixture
def serve():
    """Starts a tf.data service of so many workers: (dispatcher, workers)."""
    service = tf.data.experimental.service

    def start(num_workers):
        dispatcher = service.DispatchServer()
        address = dispatcher.target.split("://")[1]
        config = service.WorkerConfig(dispatcher_address=address)
        workers = [service.WorkerServer(config) for _ in range(num_workers)]
        while dispatcher._num_workers() < num_workers:
            time.sleep(0.02)
        return dispatcher, workers

    return start


def tasks_of(workers):
    return sum(worker._num_tasks() for worker in workers)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_service_gives_the_same_batches(directory, serve, num_workers):
    dispatcher, workers = serve(num_workers)
    data = PretrainingData(directory, 4, service=dispatcher.target)
    here = PretrainingData(directory, 4)
    for options in ({}, {"start_step": 5, "first_row": 2, "replica_batch": 1}):
        dataset = data.dataset(**options)
        assert dataset.element_spec == here.dataset(**options).element_spec
        found, expected = (take(x, 150, **options) for x in (data, here))
        assert_equal(found, expected)
    # Read by the workers, not by this process.
    assert tasks_of(workers) >= 2


def test_a_run_that_reads_by_a_service(records, serve, tmp_path):
    """The command's option: training and held-out records, the same losses."""
    dispatcher, workers = serve(1)
    model = write_configs(tmp_path)[:2]
    here, there = tmp_path / "here", tmp_path / "there"
    for output, *more in (
        (here,),
        (there, "--data-service", dispatcher.target),
    ):
        argv = arguments(records, output, *model, *more, steps=3)
        assert run_train(*argv) == 0
    assert tasks_of(workers) >= 2
    read = [read_json_lines(x / "metrics.jsonl") for x in (here, there)]
    losses = [[line["loss"] for line in lines] for lines in read]
    assert losses[0] == losses[1] and len(losses[0]) >= 2
