"""The host target's headers: programs of tests/runtime/host, plain and under sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from dagc.base.resources import resource
from dagc.build.toolchain import find_cxx, find_nvcc, toolkit_include
from dagc.cuda.text import rewrite_for_host
from dagc.emit.common import host_headers
from tests.precompiled import by_clang
from tests.tiers import examples, representatives

SOURCES = Path(__file__).parent / "host"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
MODES = {
    "optimised": ("-O3", "-ffp-contract=off"),
    "thread": ("-O0", "-g1", "-fsanitize=thread"),
    "address": ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "ucontext": ("-O0", "-DDAGC_HOST_UCONTEXT"),  # how other processors than x86-64 switch stacks
}
RACE = 66  # how ThreadSanitizer ends a program in which it found one
ENVIRONMENT = {
    # The first report is enough; each further one of a large range takes ThreadSanitizer as long as the first.
    "TSAN_OPTIONS": "halt_on_error=1:atexit_sleep_ms=0:allocator_may_return_null=1",
    "ASAN_OPTIONS": "allocator_may_return_null=1",
}

needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")

Make = Callable[[str, str], tuple[Path, str]]
PARTS = ("kernels", "api", "wrong", "races", "peers", "put")
MAIN = """
int main(int count, char** arguments) {
  const char* part = count < 2 ? "" : arguments[1];
  if (std::strcmp(part, "kernels") == 0) return kernels::main(count - 1, arguments + 1);
  if (std::strcmp(part, "api") == 0) return api::main(count - 1, arguments + 1);
  if (std::strcmp(part, "peers") == 0) return peers::main(count - 1, arguments + 1);
  if (std::strcmp(part, "put") == 0) return put::main(count - 1, arguments + 1);
  if (std::strcmp(part, "wrong") == 0) return wrong::main(count - 1, arguments + 1);
  return std::strcmp(part, "races") == 0 ? races::main(count - 1, arguments + 1) : 64;
}
"""


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`make(name, mode)`: the program with host/NAME.cpp, and NAME, its first argument.

    All files are in one program, each in a namespace: the compiler reads the headers once a mode.
    """
    folder = tmp_path_factory.mktemp("host")
    texts = {name: rewrite_for_host((SOURCES / f"{name}.cpp").read_text()) for name in PARTS}
    headers = sorted({line for text in texts.values() for line in re.findall(r"^#include .*", text, re.MULTILINE)})
    for name, text in texts.items():
        (folder / f"{name}.cpp").write_text(text)
    parts = [f'namespace {name} {{\n#include "{name}.cpp"\n}}' for name in PARTS]
    (folder / "all.cpp").write_text("\n".join([*headers, *parts]) + MAIN)

    @cache
    def compiled(mode: str) -> Path:
        compiler = find_cxx()
        assert compiler is not None
        program = folder / mode
        include = [f"-I{resource('templates/runtime')}", f"-I{SOURCES}"]
        flags = ["-std=c++17", "-pthread", "-rdynamic", *WARNINGS, *MODES[mode], *include]
        flags += by_clang() if "-O0" in flags else ()
        command = [str(compiler.path), *flags, str(folder / "all.cpp"), "-o", str(program)]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return program

    return lambda name, mode: (compiled(mode), name)


def run(program: tuple[Path | str, ...], case: str, symbols: bool = True) -> subprocess.CompletedProcess[str]:
    """Without `symbols` ThreadSanitizer finds the same, but reports addresses: names take most of the time of a run."""
    environment = {**os.environ, **ENVIRONMENT}
    environment["TSAN_OPTIONS"] += f":symbolize={int(symbols)}"
    return subprocess.run([*map(str, program), case], capture_output=True, text=True, timeout=600, env=environment)


def cases(name: str, pattern: str = r'^    \{"(\w+)"') -> list[str]:
    """The names in the table of cases of host/NAME.cpp."""
    found = re.findall(pattern, (SOURCES / f"{name}.cpp").read_text(), re.MULTILINE)
    assert found
    return found


RACES = cases("races", r"CASE\((\w+)\)[,}]")
SOUND = [name for name in RACES if name.startswith("sound")]
BROKEN = [name for name in RACES if name.startswith("broken")]
WRONG = {
    "half_a_barrier": "kernel half_a_barrier, launched at .*: block (0, 0, 0): deadlock: 16 threads wait in "
    "__syncthreads, 16 in warp functions, the first of them in __syncwarp with mask 0xffffffff, "
    "where the lanes 0xffff do not come",
    "absent_lanes": "where the lanes 0x55555555 do not come",
    "different_functions": "lanes of a warp meet in __ballot_sync, __all_sync or __any_sync and in __shfl_sync",
    "not_named": "the mask of __syncwarp (0x2) does not name the calling lane 0",
    "different_masks": "the first of them in __syncwarp with mask 0x1ffff, where the lanes 0x10000 do not come",
    "trap": "__trap called in a kernel",
    "outside": "__syncthreads called outside of a kernel",
}


@needs_cxx
@pytest.mark.parametrize(
    ("name", "mode"), representatives(product(("kernels", "api"), MODES), ("kernels", "thread"), ("api", "thread"))
)
def test_cases(make: Make, name: str, mode: str) -> None:
    program = make(name, mode)
    listed = subprocess.run([*program], capture_output=True, text=True, check=True).stdout.split()
    assert len(listed) >= 14
    for case in listed:
        result = run(program, case)
        assert (case, result.returncode, result.stderr) == (case, 0, "")


@needs_cxx
@pytest.mark.parametrize("mode", representatives(["optimised", "thread", "address"], "thread"))
def test_reductions_and_exchanges_by_peer(make: Make, mode: str) -> None:
    """Ranks that are streams write into one another's memory, whoever is ahead; none is ahead too far."""
    result = run(make("peers", mode), "all")
    assert (result.returncode, result.stderr) == (0, "")


@needs_cxx
@pytest.mark.parametrize("case", cases("put"))
def test_messages_that_kernels_write(make: Make, case: str) -> None:
    """Right and without a race; without one of their five synchronisations ThreadSanitizer finds one."""
    result = run(make("put", "thread"), case)
    assert (result.returncode, "data race" in result.stderr) == (
        (RACE, True) if case.startswith("broken") else (0, False)
    )


@needs_cxx
@pytest.mark.parametrize("mode", representatives(["optimised", "thread", "address"], "thread"))
@pytest.mark.parametrize("case", WRONG)
def test_kernels_that_cannot_go_on_end_the_program(make: Make, case: str, mode: str) -> None:
    result = run(make("wrong", mode), case)
    assert result.returncode == 5
    assert result.stdout == ""
    assert result.stderr.startswith("dagc: ")
    assert result.stderr.count("\n") == 1
    pattern = re.escape(WRONG[case]).replace(re.escape(".*"), ".*")
    assert re.search(pattern, result.stderr)


def test_each_wrong_kernel_is_tried() -> None:
    assert cases("wrong") == list(WRONG)


@needs_cxx
@pytest.mark.parametrize("case", SOUND)
def test_thread_sanitizer_is_silent(make: Make, case: str) -> None:
    result = run(make("races", "thread"), case)
    assert (result.returncode, result.stderr) == (0, "")


@needs_cxx
@pytest.mark.parametrize("case", BROKEN)
def test_thread_sanitizer_speaks(make: Make, case: str) -> None:
    result = run(make("races", "thread"), case)
    assert result.returncode == RACE
    assert "WARNING: ThreadSanitizer: data race" in result.stderr
    # Of this the ThreadSanitizer of GCC 13 and newer makes no report at all.
    assert "failed to restore the stack" not in result.stderr


@needs_cxx
@pytest.mark.parametrize("case", representatives(RACES, *SOUND[::4], *BROKEN[::4]))
def test_thread_sanitizer_is_reliable(make: Make, case: str) -> None:
    times = examples(8)
    codes = [run(make("races", "thread"), case, symbols=False).returncode for _ in range(times)]
    assert codes == [RACE if case.startswith("broken") else 0] * times


@needs_cxx
def test_two_files_share_the_headers(make: Make, tmp_path: Path) -> None:
    """All is inline, and every header stands on its own."""
    compiler = find_cxx()
    assert compiler is not None
    folder = resource("templates/runtime")
    found = {h.stem for h in (folder / "dagc").glob("host_*.hpp")}
    found.remove("host_thrust")  # needs the headers of a CUDA toolkit
    headers = [*sorted(found), "target", "tsan", "math"]
    for name in ("a", "b"):
        text = "".join(f'#include "dagc/{h}.hpp"\n' for h in (headers if name == "a" else reversed(headers)))
        (tmp_path / f"{name}.cpp").write_text(text + ("int main() {}\n" if name == "a" else ""))
    flags = ("-std=c++17", "-pthread", *WARNINGS, f"-I{folder}", *by_clang())
    command = [str(compiler.path), *flags, "a.cpp", "b.cpp", "-o", "both"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


STATES = """#include <cstdio>
#include "curand_kernel.h"
int main() {
  curandState s;
  curand_init(1234, 7, 3, &s);
  std::printf("%zu %u %u %u %u %u %u", sizeof s, s.v[0], s.v[1], s.v[2], s.v[3], s.v[4], s.d);
  for (int i = 0; i < 8; ++i) std::printf(" %u", curand(&s));
  std::printf(" %d", curand_uniform(&s) > 0);
}
"""


@needs_cxx
@pytest.mark.skipif(
    not any((folder / "curand_kernel.h").is_file() for folder in toolkit_include()), reason="needs cuRAND's headers"
)
def test_numbers_of_curand_are_those_of_xorwow(tmp_path: Path) -> None:
    """By the toolkit's header: a state of 48 bytes, and the recurrence from it."""
    compiler = find_cxx()
    assert compiler is not None
    (tmp_path / "a.cpp").write_text(STATES)
    (tmp_path / "headers").mkdir()
    for name in ("curand_kernel.h", "cuda_runtime.h"):
        (tmp_path / "headers" / name).write_text(host_headers()[name])
    after = [word for folder in toolkit_include() for word in ("-idirafter", str(folder))]
    flags = ["-std=c++17", "-w", "-O0", "-Iheaders", f"-I{resource('templates/runtime')}", *after]
    subprocess.run([str(compiler.path), *flags, "a.cpp", "-o", "a"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout.split()
    size, *v, d = map(int, said[:7])
    *numbers, positive = map(int, said[7:])
    for number in numbers:
        t = v[0] ^ (v[0] >> 2)
        v = [*v[1:], ((v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1))) % 2**32]
        d = (d + 362437) % 2**32
        assert number == (v[4] + d) % 2**32
    assert (size, positive) == (48, 1)


@pytest.fixture(scope="session")
def gpu_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kernels.cpp, as it stands, compiled for a GPU."""
    compiler = find_nvcc()
    assert compiler is not None
    program = tmp_path_factory.mktemp("gpu") / "kernels"
    flags = ["-std=c++17", "-arch=sm_90", "--Werror", "all-warnings", f"-Xcompiler={','.join(WARNINGS)}", "-x", "cu"]
    include = [f"-I{resource('templates/runtime')}", f"-I{SOURCES}"]
    command = [str(compiler.path), *flags, *include, str(SOURCES / "kernels.cpp"), "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return program


@pytest.mark.thorough
@needs_nvcc
@pytest.mark.nvcc
def test_the_same_text_compiles_for_a_gpu(gpu_kernels: Path) -> None:
    listed = subprocess.run([str(gpu_kernels)], capture_output=True, text=True, check=True).stdout.split()
    assert listed == cases("kernels")


@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", cases("kernels"))
def test_the_same_text_gives_the_same_on_a_gpu(gpu_kernels: Path, case: str) -> None:
    result = run((gpu_kernels,), case)
    assert (result.returncode, result.stderr) == (0, "")
