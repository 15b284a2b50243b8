"""Mistakes of applications: error values with a text on every rank, never the end of the process, never a hang."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dagc import api
from dagc.base.errors import BuildFailed, MissingTool, UsageError
from tests.library.conftest import SAMPLES, Libraries, Start

HERE = Path(__file__).parent
BAD, MISSING = 2, 3
NO_COPY = "an instance cannot be copied or pickled: create another one, on all ranks of a communicator"

# Case -> the code, and what the text holds; of the cases that succeed, what they give.
WANTED: dict[str, tuple[int, Any]] = {
    "required": (0, [BAD, True, "heat.dag:12:9: require m >= 2 does not hold for these data: m = 1"]),
    "good": (0, True),
    "small": (BAD, "rank 1: array `y` has 7 elements, needs 8"),
    "null": (BAD, "rank 0: array `y` is a null pointer"),
    "misaligned": (BAD, "rank 0: array `y` is not aligned to 4 bytes"),
    "overlapping": (BAD, "overlaps array `"),
    "read twice": (0, True),
    "counts": (BAD, "message `x`: rank 1 sends 8 bytes to rank 0, which expects 4"),
    "unexpected": (BAD, "message `x`: rank 0 expects it from rank 1, which does not send it"),
    "no such rank": (BAD, "rank 7 does not exist, there are 2"),
    "bytes of a negative size": (BAD, "a dimension is negative: -1"),
    "negative": (BAD, "rank 1: "),
    "no memory": (5, "rank 1: out of memory: "),
    "two at once": (0, [True, True, True]),
    "negative n": (BAD, "a negative number of iterations: -1"),
    "none": (0, None),
    "rebound": (0, 8.0),
    "rebind fails": (BAD, "array `y` has 3 elements, needs 8"),
    "without arrays": (BAD, "the instance has no arrays, since spmv_rebind failed"),
    "rebound again": (0, 10.0),
    "closed": (BAD, "the instance is closed"),
    "closed and rebound": (BAD, "the instance is closed"),
    "destroyed": (BAD, "this handle names no instance"),
    "destroyed twice": (BAD, "this handle names no instance"),
    "never created": (BAD, "this handle names no instance"),
    "of another library": (BAD, "this handle names no instance"),
    "other header": (BAD, "compiled with another version of spmv.h"),
    "used by two threads": (0, [[BAD, "another thread is in a call with this instance"]]),
    "pickled": (0, NO_COPY),
    "copied": (0, NO_COPY),
    "copied deeply": (0, NO_COPY),
    "dropped": (0, [["ResourceWarning", "not closed: it stays until the process ends"]]),
    "another MPI": (MISSING, ", but another runs Another MPI 1.2: use one MPI for both"),
    "one MPI": (0, "made"),
    "comm 0": (BAD, "no communicator: give one of MPI, or the integer of MPI_Comm_c2f"),
    "comm 1234567": (BAD, "no communicator: give one of MPI, or the integer of MPI_Comm_c2f"),
    "bytes by comm 0": (BAD, "no communicator: give one of MPI, or the integer of MPI_Comm_c2f"),
    "no communicator": (BAD, "the communicator is MPI_COMM_NULL"),
    "intercommunicator": (BAD, "the communicator is an intercommunicator"),
    "bytes by an intercommunicator": (BAD, "the communicator is an intercommunicator"),
}


@pytest.fixture(scope="module")
def said(libraries: Libraries) -> dict[str, list[dict[str, Any]]]:
    """Per case, what each of two ranks said."""
    from dagc.measure.launch import launch

    environment = {"MPI4PY_RC_THREAD_LEVEL": "multiple", "PYTHONPATH": str(SAMPLES.parent)}
    words = [sys.executable, str(HERE / "mistakes.py"), str(libraries.spmv), str(libraries.heat)]
    out: dict[str, list[dict[str, Any]]] = {}
    for line in launch(words, 2, env=environment, timeout=300).check().stdout.replace("}{", "}\n{").split("\n"):
        if line.strip():
            record = json.loads(line)
            out.setdefault(record["case"], []).append(record)
    return out


@pytest.mark.parametrize("case", WANTED)
@pytest.mark.mpi
def test_the_same_error_on_every_rank(said: dict[str, list[dict[str, Any]]], case: str) -> None:
    code, text = WANTED[case]
    assert len(said[case]) == 2
    for record in said[case]:
        assert record["code"] == code, record
        if code:
            assert text in record["said"]
        else:
            assert record["said"] == text


@pytest.mark.mpi
def test_memory_of_the_application(said: dict[str, list[dict[str, Any]]]) -> None:
    for record in said["allocator"]:
        there, asked, left, kept = record["said"]
        assert there == asked
        assert sum(there) > 0
        assert left == [0, 0, 0]
        assert kept == 0


@pytest.mark.mpi
def test_the_error_handler_of_the_caller_stays(said: dict[str, list[dict[str, Any]]]) -> None:
    assert all(record["said"] is True for record in said["handler"])  # mpi4py's: MPI_ERRORS_RETURN


@pytest.mark.parametrize(
    ("level", "code", "text"), [("single", MISSING, "needs MPI_THREAD_MULTIPLE"), ("", BAD, "MPI is not running")]
)
@pytest.mark.mpi
def test_mpi_as_it_was_started(libraries: Libraries, level: str, code: int, text: str, tmp_path: Path) -> None:
    from dagc.measure.launch import launch

    script = (HERE / "mistakes.py").read_text(encoding="utf-8").split("whole = ")[0]
    script = script.replace("1 - comm.rank", "0")
    if not level:
        script = script.replace(
            "from mpi4py import MPI", "import mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI"
        )
        script = script.replace("me, other = comm.rank, 0", "me, other, comm = 0, 0, 1")
    (tmp_path / "script.py").write_text(script + 'say("level", lambda: create(given()))\n', encoding="utf-8")
    environment = {"MPI4PY_RC_THREAD_LEVEL": level or "single", "PYTHONPATH": str(SAMPLES.parent)}
    words = [sys.executable, str(tmp_path / "script.py"), str(libraries.spmv)]
    record = json.loads(launch(words, 1, env=environment, timeout=300).check().stdout)
    assert record["code"] == code
    assert text in record["said"]


@pytest.mark.mpi
def test_around_the_end_of_mpi(libraries: Libraries, start: Start) -> None:
    """In Python, what is wrong with the arguments of one rank fails on all; after MPI has ended, calls fail, and
    instances that were forgotten do no harm."""
    script = """
import os, sys
import numpy as np
from mpi4py import MPI
import dagc
heat, comm = dagc.load_library(sys.argv[1]), MPI.COMM_WORLD
def create(**changes):
    given = dict(n=8, m=4, up=-1, down=-1, u_0_=np.zeros((6, 8)), u_1_=np.zeros((6, 8)), result=np.zeros((4, 8)))
    return heat.Instance(comm, **{**given, **(changes if comm.rank == 1 else {})}), given
def said(call):
    try:
        call()
    except Exception as error:
        os.write(1, f"{comm.rank} {type(error).__name__} {error}\\n".encode())  # whole
said(lambda: create(result=np.zeros((4, 8), 'f4')))
instance, given = create()
said(lambda: instance.rebind(**{k: v for k, v in given.items() if k != 'n' or comm.rank == 0}))
said(lambda: instance.run(2**64 + comm.rank))
said(lambda: instance.run())
instance.rebind(**given)
instance.run(2)
forgotten, _ = create()
MPI.Finalize()
comm = type('Ended', (), {'rank': 0})
said(lambda: instance.run())
instance.close()
"""
    said = start(sys.executable, "-c", script, libraries.heat, ranks=2).check().stdout
    lines = re.sub(r" \(this library is linked with [^()\s][^()]*\)", "", said).splitlines()
    ended = "0 Error MPI is not running: call MPI_Init first, and destroy before MPI_Finalize"
    unbound = "Error the instance has no arrays, since heat_rebind failed"
    wrong = "result: its elements are float of 4 bytes, not f64"
    wanted = [f"0 Error rank 1: {wrong}", f"1 ValueError {wrong}"]
    wanted += ["0 Error rank 1: missing: n", "1 TypeError missing: n"]
    wanted += [f"{rank} OverflowError n: {2**64 + rank} is not in the range of its type" for rank in range(2)]
    assert sorted(lines) == sorted([*wanted, f"0 {unbound}", f"1 {unbound}", ended, ended])


@pytest.mark.parametrize("name", ["std", "9lives", "with space", "printf", "a" * 40, "class", "é", "end_", "lambda"])
def test_names_of_libraries(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        api.compile(SAMPLES / "spmv/spmv.dag", tmp_path / "out", target="host", build=False, form="library", name=name)
    assert "--name" in str(error.value.help)
    assert not (tmp_path / "out").exists()


def test_a_wheel_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is compiled or written."""
    monkeypatch.setitem(sys.modules, "wheel", None)
    with pytest.raises(MissingTool, match="the package `wheel` is missing") as error:
        api.compile(SAMPLES / "spmv/spmv.dag", tmp_path / "out", target="host", form="wheel")
    assert error.value.help == "pip install wheel"
    assert not (tmp_path / "out").exists()


def test_options_that_contradict(tmp_path: Path) -> None:
    spmv = SAMPLES / "spmv/spmv.dag"
    with pytest.raises(UsageError, match="--run needs a standalone program"):
        api.compile(spmv, tmp_path / "out", target="host", form="library", run=True)
    with pytest.raises(UsageError, match="--name is the name of a library"):
        api.compile(spmv, tmp_path / "out", target="host", build=False, name="mine")
    with pytest.raises(UsageError, match="Python's own module `json` would hide"):
        api.compile(spmv, tmp_path / "out", target="host", form="wheel", name="json")
    for name, where in {"numpy": "", "NumPy": "", "cupy": "", "pytest": " in .*pytest"}.items():
        with pytest.raises(UsageError, match=f"the wheel's module would hide the module `{name}`{where}"):
            api.compile(spmv, tmp_path / "out", target="host", form="wheel", name=name)
    with pytest.raises(UsageError, match="a wheel holds the library that is built"):
        api.compile(spmv, tmp_path / "out", target="host", form="wheel", build=False)
    assert not (tmp_path / "out").exists()


CODE = """program coded
array x : f32[8] inout
kernel k(x: inout f32[8]) { gpu { cpp work from "work.cpp" } }
dag { k : gpu k(x) }
"""


@pytest.mark.usefixtures("unoptimised")
def test_code_that_is_incomplete(tmp_path: Path) -> None:
    """A function that is nowhere is named when the library is built; a file that was edited is compiled again."""
    (tmp_path / "coded.dag").write_text(CODE)
    text = "#include <cuda_runtime.h>\nvoid elsewhere(float*) {}\nvoid work(float* x, cudaStream_t) { elsewhere(x); }\n"
    (tmp_path / "work.cpp").write_text(text)

    def build() -> Path | None:
        return api.compile(tmp_path / "coded.dag", tmp_path / "out", target="host", form="library", force=True).binary

    assert build() is not None
    (tmp_path / "work.cpp").write_text(text.replace(" {}", ";"))
    with pytest.raises(BuildFailed, match=r"undefined reference to `elsewhere\(float\*\)'"):
        build()
