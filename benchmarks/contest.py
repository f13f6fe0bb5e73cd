"""Runs contenders alternately, each in a process of its own.

Every round asks each contender once, in turn, so that whatever else happens on
the machine falls on all of them; ratios are formed within a round.
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Short calls are repeated until a round takes about this long.
_ROUND_SECONDS = 0.5
_MIN_ROUNDS = 3


class Ended(Exception):
    """The process of a contender has ended.

    Attributes:
        status: "skipped", if what it needs is not there, or "failed".
    """

    def __init__(self, reason, status):
        super().__init__(reason)
        self.status = status


class Process:
    """A contender that has been set up and answers requests.

    Args:
        contender: Contender of `measurements`.
        log: path for what it prints.
        matmul_size: int, or None for no measure of the machine's rate.
        timeout: float, seconds to wait for one answer.

    Raises:
        Ended: if it could not be set up.
    """

    def __init__(self, contender, log, matmul_size, timeout):
        self._log = pathlib.Path(log)
        self._timeout = timeout
        self._timed_out = False
        self._log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                cwd=ROOT,
                env={
                    **os.environ,
                    **contender.environment,
                    "PYTHONPATH": os.pathsep.join(paths),
                },
            )
        self.set_up = self._ask(
            factory=contender.factory,
            options=contender.options,
            matmul_size=matmul_size,
        )
        warm = max(self.set_up["warm_seconds"], 1e-6)
        self.calls = max(1, math.ceil(_ROUND_SECONDS / warm))

    def run(self):
        """Seconds of one call."""
        return self._ask(calls=self.calls)["seconds"]

    def finish(self):
        """End the process; return its memory, dict of bytes."""
        self._process.stdin.close()
        memory = self._answer()
        self._process.wait()
        return memory

    def kill(self):
        """Kill the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def _ask(self, **request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `_answer` raises and says why.
        return self._answer()

    def _answer(self):
        timer = threading.Timer(self._timeout, self._time_out)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _time_out(self):
        self._timed_out = True
        self._process.kill()

    def _ended(self):
        status = self._process.wait()
        if self._timed_out:
            return Ended(f"no answer in {self._timeout:.0f} s", "failed")
        if status < 0:
            name = signal.Signals(-status).name
            return Ended(f"ended by {name} (out of memory?)", "failed")
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return _explained(lines[-1] if lines else f"exit status {status}")


def _explained(last_line):
    """Turn the last line of a traceback into an `Ended` for the table."""
    missing = re.match(
        r"ModuleNotFoundError: No module named '(.*)'", last_line
    )
    if missing:
        return Ended(f"{missing[1].split('.')[0]} is not installed", "skipped")
    absent = re.match(r"(?:\w+\.)*NotAvailable: (.*)", last_line)
    if absent:
        return Ended(absent[1], "skipped")
    return Ended(last_line.strip(), "failed")


def hold(measurement, settings, log_directory, say=print):
    """Measure all contenders of a measurement.

    Few run alongside each other, because each holds its memory between its
    turns: the first one, which the others are compared with, meets them in
    several heats.

    Args:
        measurement: Measurement of `measurements`.
        settings: object with `rounds`, `alongside`, `limit_seconds`,
            `timeout` and `matmul_size`.
        log_directory: path.
        say: function of str, told what happens.

    Returns:
        list of dict, a row for each contender; see `_row`.
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
    """dict of contender's name to what was measured of it."""
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
    """Add the rounds of another heat of the same contender."""
    if not row["seconds"]:
        row.update(other)
        return
    row["seconds"] += other["seconds"]
    row["ratios"] = (row["ratios"] or []) + (other["ratios"] or [])


def _row(result, flops):
    """Results of one contender for the table.

    Returns:
        dict: `name`, `library`, `items` of one call, `status`, `reason`; where
        it was measured also `seconds` of each round, quartiles of them and of
        the ratios to the first contender, `items_per_second`, `first_seconds`,
        `set_up_seconds`, bytes of memory, `matmul_rate`, `flops_per_second`.
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
    """First quartile, median and third quartile, a list of float."""
    return np.percentile(list(values), [25, 50, 75]).tolist()


def ratios(seconds, reference):
    """Times longer than the reference, round by round, a list of float.

    What disturbs a machine disturbs neighbours in time alike, so the ratio of
    a round says more than the ratio of two medians.

    Raises:
        ValueError: if the numbers of rounds differ.
    """
    return [a / b for a, b in zip(seconds, reference, strict=True)]
