"""Rounds of a measurement, in which contenders take turns.

In each round every contender runs once, so that other programs on the machine
disturb all contenders alike. Ratios compare times of the same round.
"""

import re
import time

import numpy as np

from benchmarks.contest.process import Ended
from benchmarks.contest.process import Process

_MIN_ROUNDS = 3


def hold(measurement, settings, log_directory, say=print):
    """Measure all contenders of a measurement.

    A contender needs memory from the first to the last round. To save memory,
    contenders run in small groups (heats), one group after the other. The first
    contender, the reference for all ratios, runs in every heat.

    Args:
        measurement: Measurement of `measurements.measurement`.
        settings: object with `rounds`, `alongside`, `limit_seconds`,
            `timeout` and `matmul_size`.
        log_directory: path for the contenders' output.
        say: function that prints a str, for progress messages.

    Returns:
        list of dict, one row for each contender; see `_row`.
    """
    reference, *others = measurement.contenders
    size = settings.alongside - 1
    heats = [others[i : i + size] for i in range(0, len(others), size)] or [[]]
    rows = {}
    for heat in heats:
        results = _heat(
            measurement, [reference, *heat], settings, log_directory, say
        )
        for contender, result in results.items():
            result["ratios"] = None
            base = results[reference.name]["seconds"]
            if result["seconds"] and len(base) == len(result["seconds"]):
                result["ratios"] = ratios(
                    [s / result["items"] for s in result["seconds"]],
                    [s / results[reference.name]["items"] for s in base],
                )
            if contender in rows:
                _pool(rows[contender], result)
            else:
                rows[contender] = result
    return [_row(result, measurement.flops) for result in rows.values()]


def _heat(measurement, contenders, settings, log_directory, say):
    """Measure the contenders of one heat: dict from name to dict of results."""
    results, processes = {}, {}
    try:
        for contender in contenders:
            say(f"  {contender.name}: set up and first run")
            results[contender.name] = result = {
                "name": contender.name,
                "library": contender.library,
                "items": contender.items or measurement.items,
                "status": "measured",
                "reason": None,
                "seconds": [],
            }
            log = log_directory / _file_name(measurement.name, contender.name)
            try:
                processes[contender.name] = process = Process(
                    contender,
                    log,
                    settings.matmul_size if measurement.flops else None,
                    settings.timeout,
                )
                result.update(process.set_up)
            except Ended as ended:
                result.update(status=ended.status, reason=str(ended))
                say(f"  {contender.name}: {ended.status}: {ended}")
        _rounds(processes, results, settings, say)
        for name, process in processes.items():
            results[name].update(process.finish())
    finally:
        for process in processes.values():
            process.kill()
    return results


def _rounds(processes, results, settings, say):
    begun = time.monotonic()
    for number in range(settings.rounds):
        late = time.monotonic() - begun > settings.limit_seconds
        if late and number >= _MIN_ROUNDS:
            say(f"  stopped after {number} rounds: they took long")
            return
        for name, process in list(processes.items()):
            try:
                results[name]["seconds"].append(process.run())
            except Ended as ended:
                del processes[name]
                results[name].update(
                    status=ended.status, reason=str(ended), seconds=[]
                )
                say(f"  {name}: {ended.status}: {ended}")


def _pool(row, other):
    """Add a contender's results in another heat to the contender's row."""
    if not row["seconds"]:
        row.update(other)
        return
    row["seconds"] += other["seconds"]
    row["ratios"] = (row["ratios"] or []) + (other["ratios"] or [])


def _row(result, flops):
    """Make the row of one contender for the table.

    Returns:
        dict of `name`, `library`, `items` of one call, `status` and `reason`.
        If the contender ran, the dict also has the `seconds` of each round, and
        the quartiles of these times and of the ratios to the first contender.
        The other keys are `items_per_second`, `first_seconds`,
        `set_up_seconds`, `matmul_rate`, `flops_per_second` and bytes of memory.
    """
    row = dict(result)
    seconds = row["seconds"]
    row["seconds_quartiles"] = quartiles(seconds) if seconds else None
    row["ratio_quartiles"] = quartiles(row["ratios"]) if row["ratios"] else None
    median = row["seconds_quartiles"] and row["seconds_quartiles"][1]
    row["items_per_second"] = row["items"] / median if median else None
    row["flops_per_second"] = flops / median if flops and median else None
    return row


def _file_name(*names):
    return re.sub(r"[^\w.]+", "_", "-".join(names)) + ".log"


def quartiles(values):
    """Compute the first quartile, the median and the third quartile."""
    return np.percentile(list(values), [25, 50, 75]).tolist()


def ratios(seconds, reference):
    """Divide a contender's time in each round by the reference's time.

    A disturbance affects both contenders in the same round, so ratios per round
    vary less than the ratio of two medians.

    Raises:
        ValueError: if the numbers of rounds differ.
    """
    return [a / b for a, b in zip(seconds, reference, strict=True)]
