"""Program `python` that starts fast: it forks a process with the imports done.

Importing TensorFlow takes most of the time of a short command. A server imports
it once, does not use it, and forks for every command. A client replaces the
interpreter, and sends its arguments, folder and streams to the server.
"""

import contextlib
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import traceback

IMPORTS = ("keras", "tensorflow", "tensorflow_text", "orbit", "sentencepiece")

CLIENT = """\
#!{python} -S
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
devices = os.environ.get("LOGICAL_DEVICES", "1")
given = "\\0".join([os.getcwd(), devices, *sys.argv[1:]]).encode()
socket.send_fds(server, [len(given).to_bytes(4, "big")], [0, 1, 2])
server.sendall(given)
sys.exit(int.from_bytes(server.recv(1), "big"))
"""


@contextlib.contextmanager
def preloaded_python(directory, environment):
    """Context of a program that runs `-m MODULE` or `-c CODE` like Python.

    Args:
        directory: path for the program, which has the name `python`.
        environment: dict of str, environment variables of all commands. A
            single command can set only LOGICAL_DEVICES, the number of CPUs for
            TensorFlow.

    Yields:
        path of the program.
    """
    address = str(directory / "socket")
    program = directory / "python"
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, str(pathlib.Path(__file__)), address],
        env=environment,
        stdout=subprocess.PIPE,
    ) as server:
        try:
            assert server.stdout.readline() == b"ready\n"
            yield program
        finally:
            server.kill()


def _serve(address):
    for name in IMPORTS:
        __import__(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    # Children are not waited for: they answer the clients themselves.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(client)
        client.close()


def _answer(client):
    """Run one command in this process, then end the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, *_ = socket.recv_fds(client, 4, 3)
    given = b""
    while len(given) < int.from_bytes(size, "big"):
        given += client.recv(1 << 16)
    folder, devices, *arguments = given.decode().split("\0")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    divide_cpu(int(devices))
    try:
        _run(*arguments)
        status = 0
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(bytes([status or 0]))
    os._exit(0)


def _run(option, name, *arguments):
    sys.argv = [name if option == "-m" else "-c", *arguments]
    sys.path[0] = ""
    if option == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})


def divide_cpu(number):
    """Divide the CPU into logical CPUs; call this before TensorFlow computes.

    Args:
        number: int, number of logical CPUs.
    """
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * number
    )


if __name__ == "__main__":
    _serve(sys.argv[1])
