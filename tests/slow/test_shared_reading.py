"""Records read by several workers, or by a tf.data service."""

import time

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from tests.support.record_fixtures import RECORDS
from tests.support.record_fixtures import numbers
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("num_workers", [1, 2])
def test_service_gives_the_same_batches(directory, num_workers):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    workers = [
        service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
        for _ in range(num_workers)
    ]
    while dispatcher._num_workers() < num_workers:
        time.sleep(0.02)
    data = PretrainingData(directory, 4, service=dispatcher.target)
    here = PretrainingData(directory, 4)
    for options in ({}, {"start_step": 5, "first_row": 2, "replica_batch": 1}):
        dataset = data.dataset(**options)
        assert dataset.element_spec == here.dataset(**options).element_spec
        for one, other in zip(
            take(data, 150, **options), take(here, 150, **options), strict=True
        ):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])
    # Read by the workers, not by this process.
    assert sum(worker._num_tasks() for worker in workers) >= 2
    del workers, dispatcher
