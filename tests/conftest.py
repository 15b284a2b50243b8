"""Options and fixtures of all tests."""

from __future__ import annotations

import difflib
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dagc.build.mpi import YIELDING, MPIKind
from dagc.build.toolchain import GPU
from dagc.build.toolchain import gpus as find_gpus
from tests.precompiled import do_not_optimise, replace_compiler
from tests.tiers import TIERS, use_tier

Compare = Callable[[Path, str], None]
LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="rewrite golden files instead of comparing with them"
    )
    parser.addoption("--tier", choices=TIERS, default="default", help="how much of the tests to take (tests/tiers.py)")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all modules are imported, which is a quarter of the time
    use_tier(config.getoption("--tier"))
    if not hasattr(config, "workerinput") and "DAGC_CACHE" not in os.environ:
        # One for all processes of this run, which share what they compile. What an earlier run left in the user's own
        # would make this one look quicker than it is. To keep one between runs, name it in DAGC_CACHE.
        os.environ["DAGC_CACHE"] = tempfile.mkdtemp(prefix="dagc-test-cache-")
        config.add_cleanup(partial(shutil.rmtree, os.environ["DAGC_CACHE"], ignore_errors=True))
    # What tests compute is small, and threads of BLAS and OpenMP that wait for each other spin: on a busy machine five
    # times the work. Read where NumPy and scikit-learn are loaded, so after this.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # Also for programs that tests start themselves, with more ranks than there are cores.
    for name, value in YIELDING[MPIKind.MPICH].items():
        os.environ.setdefault(name, value)
    if not find_gpus():
        # MPICH looks for networks and watches the memory of the process, which takes half of the time of a short run.
        # Ranks of tests are on one machine, where their messages go through shared memory.
        for name, value in (("UCX_TLS", "self,posix"), ("UCX_MEM_EVENTS", "n")):
            os.environ.setdefault(name, value)
    replace_compiler()
    # What a script starts in the background ignores Ctrl-C, what nohup starts ignores SIGHUP: not what tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--tier") == "thorough":
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    config.stash[LEFT_OUT] = len(left_out)
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With `-n`: every worker has collected all tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if number := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{number} thorough tests were left out; --tier thorough runs them")
    for lines in (file.read_text() for file in Path(os.environ["DAGC_CACHE"]).glob("dagc-headers-*/refused")):
        # tests/precompiled.py: in ten times the time.
        terminalreporter.write_line(f"what clang++ refused was compiled by g++, with all headers:\n{lines}")
    for tried in Path(os.environ["DAGC_CACHE"]).glob("dagc-headers-*/*.tried"):
        if not tried.with_suffix(".o").exists():
            said = tried.with_suffix(".log").read_text()
            terminalreporter.write_line(f"headers are compiled for each program, since at once they do not:\n{said}")


def pytest_collection_finish() -> None:
    """The modules and tests of this process live until it ends: the garbage collector need not look at them again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`: neighbours, which share fixtures, run in one process; an idle one takes tests of another."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """`golden(path, text)`: the file at `path` holds exactly `text`; with --update-goldens, write it there."""
    update = bool(request.config.getoption("--update-goldens"))

    def compare(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing; write it with --update-goldens"
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
            pytest.fail("\n".join(difference), pytrace=False)

    return compare


@pytest.fixture
def gpus_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., None]]:
    """`gpus_here(GPU, ...)`: what nvidia-smi says that this machine has; without arguments, it has no GPU."""

    def have(*gpus: GPU) -> None:
        rows = (f"{gpu.name}, {gpu.capability}, {gpu.memory >> 20}, {gpu.driver}" for gpu in gpus)
        script = tmp_path_factory.mktemp("gpus") / "nvidia-smi"
        script.write_text("\n".join(("#!/bin/sh", "cat <<END", *rows, "END\n")))
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
        if gpus:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # nor does the driver name one
        find_gpus.cache_clear()

    yield have
    find_gpus.cache_clear()


@pytest.fixture(scope="module")
def unoptimised() -> Iterator[None]:
    """What dagc builds for the host in the tests of a module is compiled with -O0, in an eighth of the time.

    For tests of what programs do, by `pytest.mark.usefixtures`. Without a clang++ it is half of the time
    (tests/precompiled.py). That emitted programs are right when they are optimised, and compiled by g++, is for
    tests/emit/test_bench.py (every kind of op in a runner, and a loop in a bench, by -O1), and with the flags of users
    in the thorough tier for one program of tests/measure/test_compile.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        do_not_optimise(patch, os.environ.get("DAGC_CXXFLAGS", ""))
        yield
