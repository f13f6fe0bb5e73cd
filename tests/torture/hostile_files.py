"""A file that is wrong anywhere gives an error of one line: no crash, no hang.

Each trial changes a small valid file (bits, parts, sizes, values of JSON,
members of archives) and reads it. Either it is read, or a ValueError, TypeError
or OSError says in one line what is wrong with which file. A process of its own
reads, with 2 GB of memory and a minute for each file. It is replaced if it
ends, and after 10,000 files.
"""

import itertools
import multiprocessing
import os
import random
import resource
import traceback
import warnings

TRIALS = 1_000_000
SECONDS = 60
MOST_BYTES = 2 * 2**30
# So many files are asked for at once: a process answers each of them.
_BATCH = 200
# Files that a process reads. pyarrow keeps address space of damaged tables,
# some 80 KB each.
_MOST_FILES = 10_000


def trials(count, directory, generator):
    from tests.support.hostile_readers import SHARES

    # The readers by turns, those with larger shares in more of them.
    turns = range(max(SHARES.values()))
    order = itertools.cycle(
        [
            name
            for turn in turns
            for name, share in SHARES.items()
            if turn < share
        ]
    )
    seed, number = generator.getrandbits(32), 0
    worker = Worker(directory)
    while number < count:
        if number % _MOST_FILES == 0:
            worker.stop()
        cases = [
            (name, f"{seed}-{number + place}")
            for place, name in zip(
                range(min(_BATCH, count - number)), order, strict=False
            )
        ]
        number += len(cases)
        while cases:
            for name, problem in worker.outcomes(cases):
                yield f"{name} changed", problem
                cases = cases[1:]
    worker.stop()


class Worker:
    """A process that reads one file after the other.

    Args:
        directory: path of its files.
    """

    def __init__(self, directory):
        self._directory = directory
        directory.mkdir(exist_ok=True)
        self._number = 0
        self._process = None

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        place = self._directory / str(self._number)
        self._number += 1
        self._process = context.Process(target=_work, args=(other, place))
        self._process.start()
        other.close()
        self._pipe.recv()  # once it is ready

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def outcomes(self, cases):
        """Yields (name, problem) of cases, up to one that ends the process."""
        if self._process is None:
            self._start()
        self._pipe.send(cases)
        for name, seed in cases:
            try:
                if not self._pipe.poll(SECONDS):
                    problem = f"{seed}: no answer for {SECONDS} s"
                else:
                    yield name, self._pipe.recv()
                    continue
            except EOFError:
                self._process.join()
                status = self._process.exitcode
                problem = f"{seed}: the process ended with status {status}"
            self.stop()
            yield name, problem
            return


def _work(pipe, directory):
    """Answers cases with None or a problem, str."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from tests.support.hostile_readers import readers

    directory.mkdir()
    found = readers(directory)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # messages of C++
    pipe.send("ready")
    while True:
        for name, seed in pipe.recv():
            pipe.send(outcome(found[name], seed))


def outcome(reader, seed):
    """Changes a file of a reader, reads it, and puts it back.

    Args:
        reader: hostile_readers.Reader.
        seed: str.

    Returns:
        str, what is wrong with the answer, or None.
    """
    generator = random.Random(seed)
    name = generator.choice(list(reader.changes))
    file = reader.directory / name
    content = file.read_bytes()
    file.write_bytes(reader.changes[name](content, generator))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(reader.directory)
    except (ValueError, TypeError, OSError) as error:
        problem = _problem(error, reader.directory)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"[:300] + _place(error)
    else:
        problem = None
    finally:
        file.write_bytes(content)
    return problem and f"{name}, {seed}: {problem}"


def _problem(error, directory):
    text = str(error)
    if len(text) > 3000:
        return f"{len(text)} characters: {text[:200]}" + _place(error)
    is_named = str(directory) in text or "Received: " in text
    if isinstance(error, TypeError):
        is_named = "Received: " in text
    if "\n" in text or not is_named:
        return f"{type(error).__name__}: {text[:300]!r}" + _place(error)
    return None


def _place(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" [{os.path.basename(last.filename)}:{last.lineno}]"
