"""The command line as a process: Ctrl-C, closed streams, full disks, terminals."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from gpuparse import cli
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.conllu import Sentence, read_conllu, write_conllu
from gpuparse.decoding.methods import METHODS
from gpuparse.models.parser import Parser
from gpuparse.ops.backend.choose import has_kernel
from gpuparse.system import startup
from gpuparse.system.defaults import TREE_METHODS

ROOT = Path(__file__).parents[2]
ODD = "1\ta\x1b[31mb\x07\x9b2J\u202ec\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
SHOWN = r"a\x1b[31mb\x07\x9b2J\u202ec"

_PROGRAM = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "gpuparse.cli":
            os.write(2, b"begun\\n")
sys.meta_path.insert(0, Watch())
from gpuparse.cli import main
sys.exit(main())
"""


@pytest.fixture
def program(tmp_path) -> list[str]:
    """The program as it is installed, but that it says when its own code begins: Python has to be there first."""
    script = tmp_path / "bin" / "gpuparse"
    script.parent.mkdir()
    script.write_text(_PROGRAM)
    return [sys.executable, str(script)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def start(program, *arguments, **options) -> subprocess.Popen:
    process = subprocess.Popen([*program, *map(str, arguments)], stderr=subprocess.PIPE, env=environment(), **options)
    assert process.stderr.readline() == b"begun\n"
    return process


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """A child that is forked may not use the threads of its parent's OpenMP: it would wait for them for ever."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def forked(
    *arguments, streams: dict[int, int | str | None], cwd: Path | None = None, limit: int = 0, memory: int = 0
) -> int:
    """Run the command line in a copy of this process, which has all modules; the exit code.

    Args:
        streams: for 0, 1 and 2 a descriptor, a file to open, or None for a stream that is closed.
        limit: bytes that a file may have.
        memory: bytes that may be allocated.
    """
    child = os.fork()
    if not child:
        code = 99
        try:
            for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
                given = streams[number]
                if given is None:
                    os.close(number)
                    setattr(sys, name, None)
                    continue
                os.dup2(os.open(given, os.O_RDWR) if isinstance(given, str) else given, number)
                stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)
            os.chdir(cwd or os.getcwd())
            if limit:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if memory:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
            sys.argv = ["gpuparse", *map(str, arguments)]
            cli.main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 98
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(*arguments, tmp_path: Path, closed=(), full=(), **options) -> tuple[int, str, str]:
    """Run the command line with some streams closed or on a full disk; its code, its output and its errors."""
    texts = [tmp_path / "run.out", tmp_path / "run.err"]
    with texts[0].open("wb") as out, texts[1].open("wb") as err:
        streams = {0: os.devnull, 1: out.fileno(), 2: err.fileno()}
        streams |= dict.fromkeys(closed) | dict.fromkeys(full, "/dev/full")
        code = forked(*arguments, streams=streams, **options)
    told = code, *(path.read_text() for path in texts)
    for path in texts:
        path.unlink()
    return told


def interrupt(process, times=1, after=lambda: True) -> None:
    """Press Ctrl-C, some moments after something has come about: it leaves with 130 and a line."""
    end = time.monotonic() + 60
    while not after() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    with process:
        err = process.stderr.read()  # of the same buffer as the line before: communicate reads beside it
    assert (process.returncode, err.decode()) == (130, "gpuparse: interrupted\n")


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("command", ["sample", "parse"])
def test_ctrl_c_while_modules_are_imported_and_after(program, tmp_path, model, command, delay):
    arguments = {"sample": ("-n", 10**9), "parse": ("-q", model)}[command]
    process = start(program, command, *arguments, "-o", tmp_path / "out.conllu", stdin=subprocess.PIPE)
    time.sleep(delay)
    interrupt(process)
    assert os.listdir(tmp_path) == ["bin"]


def test_ctrl_c_while_a_file_is_written_or_input_waited_for(program, tmp_path, model):
    """And again and again, as it is pressed."""
    process = start(program, "sample", "-n", 10**9, "-o", tmp_path / "out.conllu")
    interrupt(process, times=5, after=lambda: len(os.listdir(tmp_path)) > 1)
    assert os.listdir(tmp_path) == ["bin"]
    process = start(program, "parse", "-q", model, "-o", tmp_path / "out.conllu", stdin=subprocess.PIPE)
    interrupt(process, after=(tmp_path / "out.conllu.partial").exists)
    assert os.listdir(tmp_path) == ["bin"]


@pytest.mark.parametrize("place", ["_run", "_flush"])
def test_ctrl_c_at_the_very_beginning_and_end(monkeypatch, capfd, place):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["gpuparse", "--version"])
    monkeypatch.setattr(cli, place, interrupted)
    monkeypatch.setattr(cli.startup, "end", lambda: None)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert (left.value.code, capfd.readouterr().err) == (130, "gpuparse: interrupted\n")


def test_ctrl_c_of_a_module():
    command, pipes = [sys.executable, "-m", "gpuparse", "sample", "-n", str(10**9)], {"stdout": -1, "stderr": -1}
    process = subprocess.Popen(command, env=environment(), **pipes)
    assert process.stdout.read(10) == b"# sent_id "
    interrupt(process)


def test_ctrl_c_in_a_computation_that_does_not_notice():
    """As deep in a kernel: a call that lets other threads run, and does not end."""
    code = (
        "import ctypes, os\nfrom gpuparse import startup\nstartup._PATIENCE = 0.5\n"
        "lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(128)\n"
        "with startup.interruptible():\n    lock(mutex)\n    os.write(2, b'begun\\n')\n    lock(mutex)\n"
    )
    interrupt(start([sys.executable, "-c", code]))


def test_ctrl_c_where_nothing_can_be_raised():
    class Last:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def leave() -> None:
        last = Last()
        del last
        time.sleep(5)

    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), startup.interruptible():
        leave()
    assert time.monotonic() - begun < 4
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (before, hook)


def test_ctrl_c_twice_is_once():
    """The second must not interrupt what the first one made necessary."""
    tidied = False
    with pytest.raises(KeyboardInterrupt), startup.interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(5)
        finally:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
            tidied = True
    assert tidied


@pytest.mark.parametrize("command", [["sample", "-n", "1000"], ["info"], ["info", "--json"]])
def test_a_reader_that_has_enough(tmp_path, command):
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "err").open("wb") as err:
        code = forked(*command, streams={0: os.devnull, 1: writing, 2: err.fileno()})
    os.close(writing)
    assert (code, (tmp_path / "err").read_text()) == (1, "gpuparse: <stdout>: Broken pipe\n")


@pytest.mark.parametrize(
    ("arguments", "streams", "message"),
    [
        (("sample",), {"full": [1]}, "<stdout>: No space left on device"),
        (("sample",), {"closed": [1]}, "<stdout>: Bad file descriptor"),
        (("sample", "-o", "/dev/full"), {}, "/dev/full: No space left on device"),
        (("info", "--json"), {"full": [1]}, "<stdout>: No space left on device"),
        (("info",), {"closed": [1]}, "<stdout>: Bad file descriptor"),
        (("parse", "MODEL"), {"closed": [0]}, "<stdin>: Bad file descriptor"),
        (("parse", "MODEL", "INPUT"), {"closed": [1]}, "<stdout>: Bad file descriptor"),
        (("parse", "MODEL", "INPUT", "-o", "/dev/full"), {}, "/dev/full: No space left on device"),
        (("render", "INPUT"), {"full": [1]}, "<stdout>: No space left on device"),
        (("render", "-"), {"closed": [0]}, "<stdin>: Bad file descriptor"),
        (("render", "INPUT", "-o", "/dev/full"), {}, "/dev/full: No space left on device"),
        (("evaluate", "INPUT", "INPUT"), {"full": [1]}, "<stdout>: No space left on device"),
    ],
)
def test_streams_that_are_closed_and_disks_that_are_full(tmp_path, model, arguments, streams, message):
    data = tmp_path / "input.conllu"
    data.write_text(ODD)
    given = [{"MODEL": model, "INPUT": data}.get(argument, argument) for argument in arguments]
    given += ["-q"] if arguments[0] == "parse" else []
    code, _, err = run(*given, tmp_path=tmp_path, **streams)
    assert (code, err) == (1, f"gpuparse: {message}\n")


def test_streams_that_are_not_used_may_be_closed(tmp_path, model):
    data, output = tmp_path / "input.conllu", tmp_path / "out.conllu"
    data.write_text(ODD)
    assert run("parse", model, data, "-o", output, tmp_path=tmp_path, closed=[0, 1, 2]) == (0, "", "")
    code, out, _ = run("parse", "-q", model, data, tmp_path=tmp_path)  # a pipe gets every byte
    assert code == 0 and out == output.read_text() and out.startswith(ODD[: ODD.index("0\troot")])


def test_streams_closed_from_the_beginning():
    """The real thing, once: files that are opened must not get the numbers of the streams."""
    command = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-m", "gpuparse", "sample"]
    done = subprocess.run(command, stderr=subprocess.PIPE, env=environment(), timeout=120)
    assert (done.returncode, done.stderr) == (1, b"gpuparse: <stdout>: Bad file descriptor\n")


@pytest.mark.parametrize("command", [("sample", "-n", "3000"), ("render", "DATA"), ("parse", "-q", "MODEL", "DATA")])
def test_a_file_that_cannot_grow(tmp_path, model, command):
    """As on a full disk: it is named, and nothing is left of it."""
    output = "out.conllu"
    write_conllu(artificial_treebank(300), tmp_path / "data.conllu")
    given = [{"MODEL": model, "DATA": "data.conllu"}.get(each, each) for each in command]
    code, out, err = run(*given, "-o", output, tmp_path=tmp_path, cwd=tmp_path, limit=20_000)
    assert (code, out) == (1, "")
    assert err.startswith("gpuparse: ") and err.endswith(f"{output}: File too large\n") and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["data.conllu"]


def terminal(*arguments) -> str:
    """Run with a terminal as stdout and stderr; what it was sent."""
    ours, theirs = pty.openpty()
    sent: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # which is how a terminal ends
            while block := os.read(ours, 1 << 16):
                sent.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    forked(*arguments, streams={0: os.devnull, 1: theirs, 2: theirs})
    os.close(theirs)
    reader.join(60)
    os.close(ours)
    return b"".join(sent).decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("parse", "-q", "MODEL", "INPUT"),
        ("render", "--text", "INPUT"),
        ("evaluate", "--breakdown", "LABELS", "INPUT"),
        ("evaluate", "--json", "LABELS", "INPUT"),
        ("parse", "MODEL", "BROKEN"),
        ("render", "BROKEN", "--text"),
        ("parse", "MODEL", "no\x1b[31msuch\x07\u202e"),
        ("train", "x", "--set", "training.\x1b[31m=\x07"),
        ("sample", "--\x1b[31m\x9b"),
    ],
)
def test_a_terminal_sees_no_control_characters(tmp_path, model, arguments, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    names = {"MODEL": model, "INPUT": tmp_path / "a.conllu", "LABELS": tmp_path / "b.conllu"}
    names["BROKEN"] = tmp_path / "c\x1b[31m.conllu"
    names["INPUT"].write_text(ODD)
    names["LABELS"].write_text(ODD.replace("root", "ro\x1b[31m\x9bot\u202e"))
    names["BROKEN"].write_text(ODD + f"# sent_id = \x1b[31m\x07\n{ODD}".replace("1\ta", "\x1b[31m\x9b1\ta"))
    sent = terminal(*(names.get(argument, argument) for argument in arguments))
    assert sent and not [char for char in sent if char in "\x1b\x07\x9b\u202e"], repr(sent)
    assert "Traceback" not in sent
    if arguments[0] in {"render", "parse"} and "INPUT" in arguments:
        assert SHOWN in sent


def test_long_values_are_quoted_in_part(tmp_path):
    long = "x" * 5000
    settings = [["train", "m", "--set", f"training.{each}"] for each in (f"{long}=1", f"epochs={long}")]
    methods = [[command, "m", "--method", long] for command in ("parse", "tag")]
    for command in (*settings, *methods, ["sample", "-n", long], ["sample", f"--{long}"], [long], ["render", long]):
        code, out, err = run(*command, tmp_path=tmp_path, cwd=tmp_path)
        assert (code in {1, 2}, out, err.count("\n")) == (True, "", 1)
        assert "x" * 201 not in err, command[:2]


@pytest.mark.parametrize(("words", "why"), [(6000, r"and \d+ MB are free"), (10_000, "which could not be had")])
def test_a_sentence_for_which_there_is_no_memory(tmp_path, model, monkeypatch, words, why):
    """By the estimate, or by the allocator, where the estimate was too low: it is named, the others are parsed."""
    if words == 10_000:
        monkeypatch.setattr(Parser, "_need", lambda *_: 0)
    some = [sentence.text for sentence in artificial_treebank(8)]
    some.insert(4, Sentence.from_words(["word"] * words).text)
    (tmp_path / "a.conllu").write_text("".join(some))
    line = 1 + "".join(some[:4]).count("\n")
    command = ["parse", model, "a.conllu", "-o", "b.conllu"]
    code, out, err = run(*command, tmp_path=tmp_path, cwd=tmp_path, memory=300_000_000)
    assert (code, out) == (1, "")
    named, summary, last = err.splitlines()
    needs = rf"gpuparse: a\.conllu:{line}: a sentence of {words:,} words needs about .*{why}"
    assert re.fullmatch(f"{needs}; split it, or find more memory; written unparsed", named)
    assert summary.startswith("9 sentences") and last == "gpuparse: 1 sentence of 9 written unparsed"
    written = [sentence.text for sentence in read_conllu(tmp_path / "b.conllu")]
    assert len(written) == 9 and written[4] == some[4]


def test_help_and_version_leave_with_0_and_nothing_at_all_with_2(tmp_path):
    for arguments, code in ((["--help"], 0), (["-h"], 0), (["-V"], 0), (["parse", "-h"], 0), ([], 2)):
        assert run(*arguments, tmp_path=tmp_path, cwd=tmp_path)[0] == code, arguments
    for option in ("--help", "--version"):
        code, _, err = run(option, tmp_path=tmp_path, cwd=tmp_path, full=(1,))
        assert code == 1 and "<stdout>" in err and err.count("\n") == 1, (option, err)


def test_the_compiler_of_torch_need_not_be_imported():
    """Which takes as long again as torch: what is set in its place is what torch itself would set."""
    marked = torch.compiler.assume_constant_result(lambda: None)
    assert has_kernel.__dict__.items() >= vars(marked).items()


def test_help_and_version_do_not_import_torch(tmp_path):
    """Nor does anything else that takes seconds; and what they say is so."""
    code = """
        import contextlib, io, sys
        from gpuparse import cli
        for command in ("", *(command.callback.__name__ for command in cli.app.registered_commands)):
            for option in ("-h", "--version")[: 2 - bool(command)]:
                sys.argv = ["gpuparse", *command.split(), option]
                with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
                    cli.main()
                print(bool(told.getvalue()), [name for name in ("torch", "highspy", "cupy") if name in sys.modules])
    """
    script = re.sub("(?m)^ {8}", "", code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines() == ["True []"] * (2 + len(cli.app.registered_commands))
    assert tuple(METHODS) == TREE_METHODS
