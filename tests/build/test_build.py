"""Builds with the real compilers, in a cache of each test's own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagc.base.errors import BuildFailed, DagcError, MissingTool, UsageError
from dagc.build import builder as build_module
from dagc.build import toolchain
from dagc.build.builder import KEPT, Build, build, cache_directory
from dagc.build.mpi import find_mpi, mpi_of_wrapper
from dagc.build.toolchain import TargetChoice, find_cxx, find_nvcc, find_openblas, first_error
from dagc.ir.plan import Target
from dagc.space import Space
from dagc.stages import artifacts
from dagc.stages.artifacts import proved_plan
from dagc.stages.program import read

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
SAMPLES = Path(__file__).parents[2] / "samples"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")

MAIN = '#include "answer.hpp"\n#include <cstdio>\nint main() { std::printf("%d\\n", answer()); }\n'


def test_an_architecture_without_a_target_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "gpus", lambda: ())
    assert toolchain.target_asked(None, None).target is Target.HOST
    assert toolchain.target_asked("cuda", "sm_90a").arch == "sm_90a"
    with pytest.raises(UsageError, match="sm_80 has no effect with target host .no GPU was found"):
        toolchain.target_asked(None, "sm_80")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path / "cache"))
    for name in ("DAGC_CXXFLAGS", "DAGC_NVCCFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def _project(folder: Path, answer: str = "42") -> Path:
    (folder / "include").mkdir(parents=True)
    (folder / "main.cpp").write_text(MAIN)
    (folder / "include" / "answer.hpp").write_text(f"inline int answer() {{ return {answer}; }}\n")
    return folder


def _said(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True, timeout=300).stdout


def _entries(cache: Path) -> list[Path]:
    return list(cache.glob("build/??/*"))


def test_a_program_is_built_once_for_equal_content(tmp_path: Path, cache: Path) -> None:
    one, two = _project(tmp_path / "one"), _project(tmp_path / "two")
    assert _said(build(Build(["main.cpp"], directory=one), tmp_path / "out" / "a")) == "42\n"
    entry = _entries(cache)
    assert len(entry) == 1
    made = entry[0].stat().st_ino
    assert _said(build(Build([two / "main.cpp"]), tmp_path / "b")) == "42\n"
    assert [path.stat().st_ino for path in _entries(cache)] == [made]
    assert not list(tmp_path.rglob(".dagc-build-*"))


def test_an_included_kernels_file_is_content(tmp_path: Path) -> None:
    """Two programs that differ in `kernels.cu` alone, as those of `-D m=4` and `-D m=8` may."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "main.cpp").write_text(
        '#include <cstdio>\n#include "kernels.cu"\nint main() { std::printf("%d\\n", k); }\n'
    )
    for k in (4, 8):
        (folder / "kernels.cu").write_text(f"constexpr int k = {k};\n")
        assert _said(build(Build(["main.cpp"], directory=folder), tmp_path / "a")) == f"{k}\n"


def test_a_header_and_a_flag_are_content(tmp_path: Path, cache: Path) -> None:
    folder = _project(tmp_path / "p")
    build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    (folder / "include" / "answer.hpp").write_text("inline int answer() { return 43; }\n")
    assert _said(build(Build(["main.cpp"], directory=folder), tmp_path / "a")) == "43\n"
    build(Build(["main.cpp"], directory=folder, defines=["X=1"]), tmp_path / "a")
    assert len(_entries(cache)) == 3


def test_errors_are_shown_with_the_place_and_the_command(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    text = '#line 7 "spmv.dag"\nint f() { return undeclared_name; }\n' + MAIN
    (folder / "main.cpp").write_text(text)
    with pytest.raises(BuildFailed) as caught:
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    message = caught.value.message
    assert "spmv.dag:7:18: error: " in message
    assert message.splitlines()[-1].startswith(f"  cd {folder} && ")
    assert message.endswith(f"-o {tmp_path / 'a'}")
    assert caught.value.exit_code == 4
    assert not (tmp_path / "a").exists()
    # The command that is shown repeats the failure as it stands.
    repeat = subprocess.run(message.splitlines()[-1], shell=True, capture_output=True, text=True)
    assert "spmv.dag:7:18" in repeat.stderr


def test_an_error_in_a_header_is_shown_without_the_files_that_include_it(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (folder / "inner.hpp").write_text('#line 12 "k.dag"\ninline int f() { int i = 0 return i; }\n')
    (folder / "outer.hpp").write_text('#include "inner.hpp"\n')
    (folder / "main.cpp").write_text('#include "outer.hpp"\n' + MAIN)
    with pytest.raises(BuildFailed) as caught:
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    assert "k.dag:12:" in caught.value.message
    assert not any(
        line.lstrip().startswith(("from ", "In file included")) for line in caught.value.message.splitlines()
    )


def test_warnings_are_errors(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (folder / "main.cpp").write_text("int main() { int unused; }\n")
    with pytest.raises(BuildFailed, match="unused"):
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")


def test_a_long_failure_is_cut(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (folder / "main.cpp").write_text("".join(f"int f{i}() {{ return missing_{i}; }}\n" for i in range(60)))
    with pytest.raises(BuildFailed, match=r"\.\.\. and \d+ more lines") as caught:
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    assert len(caught.value.message.splitlines()) < 40


def test_a_cu_source_on_the_host_target_and_a_shared_library(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (folder / "lib.cu").write_text('extern "C" int add(int a, int b) { return a + b; }\n')
    library = ctypes.CDLL(str(build(Build(["lib.cu"], directory=folder, shared=True), tmp_path / "lib.so")))
    assert library.add(2, 3) == 5


# One write after the other: of two at once the sanitizer may see neither. What is relaxed orders nothing.
RACE = """#include <atomic>
#include <thread>
int x;
std::atomic<bool> first{false};
int main() {
  std::thread t([] { x = 1; first.store(true, std::memory_order_relaxed); });
  while (!first.load(std::memory_order_relaxed)) std::this_thread::yield();
  x = 2;
  t.join();
  return x < 0;
}
"""


def test_thread_sanitizer_speaks(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (folder / "race.cpp").write_text(RACE)
    program = build(Build(["race.cpp"], directory=folder, sanitize="thread"), tmp_path / "race")
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert "ThreadSanitizer: data race" in done.stderr
    assert "race.cpp:8" in done.stderr


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DagcError, match=r"the source .*none\.cpp does not exist"):
        build(Build(["none.cpp"], directory=tmp_path), tmp_path / "a")


def test_missing_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _project(tmp_path / "p")
    monkeypatch.setenv("DAGC_CXX", "/nowhere/g++")
    with pytest.raises(UsageError, match="DAGC_CXX=/nowhere/g"):
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    monkeypatch.delenv("DAGC_CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"no C\+\+ compiler") as caught:
        build(Build(["main.cpp"], directory=folder), tmp_path / "a")
    assert caught.value.exit_code == 3
    assert "DAGC_CXX" in caught.value.help


def test_without_a_cache_everything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path / "file"))
    assert cache_directory() is None
    folder = _project(tmp_path / "p")
    assert _said(build(Build(["main.cpp"], directory=folder), tmp_path / "a")) == "42\n"


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (tmp_path / "file").write_text("")
    with pytest.raises(DagcError, match=r"file/a could not be built"):
        build(Build(["main.cpp"], directory=folder), tmp_path / "file" / "a")


def test_several_processes_build_the_same_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _project(tmp_path / "p")
    compiler = find_cxx()
    assert compiler is not None
    counting = tmp_path / "counting-g++"
    counting.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo run >>{tmp_path}/runs\nexec {compiler.path} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("DAGC_CXX", str(counting))
    code = (
        "import sys; from pathlib import Path; from dagc.build.builder import Build, build\n"
        f"build(Build(['main.cpp'], Path({str(folder)!r})), Path(sys.argv[1]))\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / f"a{i}")]) for i in range(4)]
    assert [child.wait(timeout=300) for child in children] == [0] * 4
    assert {_said(tmp_path / f"a{i}") for i in range(4)} == {"42\n"}
    assert len(_entries(cache)) == 1
    assert (tmp_path / "runs").read_text() == "run\n"


def test_builds_whose_keys_begin_alike_do_not_wait_for_each_other(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of such keys are in one directory. Here, the first compilation ends after that of the second."""
    folder, compiler, ended = _project(tmp_path / "p"), find_cxx(), tmp_path / "ended"
    assert compiler is not None
    waiting = tmp_path / "waiting-g++"
    waiting.write_text(
        f"""#!/bin/sh
case "$*" in *-DFIRST*)
  for i in $(seq 300); do [ -e {ended} ] && exec {compiler.path} "$@"; sleep 0.1; done
  exit 1
esac
exec {compiler.path} "$@"
"""
    )
    waiting.chmod(0o755)
    monkeypatch.setenv("DAGC_CXX", str(waiting))
    first = Build(["main.cpp"], folder, defines=["FIRST"])
    numbered = (Build(["main.cpp"], folder, defines=[f"X={number}"]) for number in range(100_000))
    second = next(order for order in numbered if _key(order)[:2] == _key(first)[:2])
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(build, first, tmp_path / "a")
        while not list(cache.glob("build/??/*")):
            time.sleep(0.01)
        build(second, tmp_path / "b")
        ended.touch()
        assert _said(waits.result()) == _said(tmp_path / "b")
    assert {path.name for path in _entries(cache)} == {_key(first), _key(second)}


def _key(order: Build) -> str:
    compiler = build_module.compiler_of(order)
    return build_module.key(order, compiler, build_module.command_line(order, compiler))


def test_the_cache_is_bounded(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _project(tmp_path / "p")
    monkeypatch.setattr(build_module, "CACHE_LIMIT_BYTES", 0)
    for value in range(3):
        build(Build(["main.cpp"], directory=folder, defines=[f"X={value}"]), tmp_path / "a")
    assert len(_entries(cache)) == 1


def test_flags_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _project(tmp_path / "p", answer="ANSWER")
    monkeypatch.setenv("DAGC_CXXFLAGS", "-DANSWER=7")
    assert _said(build(Build(["main.cpp"], directory=folder), tmp_path / "a")) == "7\n"


@pytest.mark.nvcc
@needs_nvcc
def test_cuda_with_mpi(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p,q r")  # fatbinary splits paths at commas
    (folder / "main.cu").write_text(
        "#include <mpi.h>\n__global__ void k(int* x) { *x = 1; }\n"
        "int main(int c, char** v) { MPI_Init(&c, &v); k<<<1, 1>>>(nullptr); return MPI_Finalize(); }\n"
    )
    mpi = find_mpi()
    if mpi is None:
        pytest.skip("needs an MPI")
    program = build(Build(["main.cu"], directory=folder, target="cuda", mpi=mpi), folder / "a")
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "libmpi" in needed
    assert "not found" not in needed
    (folder / "main.cu").write_text(
        '#line 3 "x.dag"\n__global__ void k(int* x) { int unused; *x = 1; }\nint main() {}\n'
    )
    with pytest.raises(BuildFailed, match=r"x\.dag"):
        build(Build(["main.cu"], directory=folder, target="cuda"), tmp_path / "b")


def test_a_wrapper_that_shows_a_prefix_it_was_built_for(tmp_path: Path) -> None:
    # As in some wheels: the flags lead nowhere, the files stand around the wrapper.
    for name in ("bin", "include", "lib"):
        (tmp_path / name).mkdir()
    wrapper = tmp_path / "bin" / "mpicc"
    wrapper.write_text("#!/bin/sh\necho gcc -I/build/prefix/include -L/build/prefix/lib -lmpi\n")
    wrapper.chmod(0o755)
    (tmp_path / "include" / "mpi.h").write_text('#define MPICH_VERSION "4.3.2"\n')
    (tmp_path / "lib" / "libmpi.so").write_text("")
    mpi = mpi_of_wrapper(wrapper, "test")
    assert mpi is not None
    assert (mpi.kind.value, mpi.version, mpi.mpiexec) == ("MPICH", "4.3.2", None)
    assert mpi.include == (tmp_path / "include",)
    assert f"-Wl,-rpath,{tmp_path / 'lib'}" in mpi.link_flags()
    assert mpi.link_flags(nvcc=True)[-2:] == ("-Xlinker", str(tmp_path / "lib"))


def test_warnings_of_a_users_text_do_not_refuse_it(tmp_path: Path) -> None:
    source = tmp_path / "unused.cpp"
    source.write_text("int main() { int unused; return 0; }\n")
    with pytest.raises(BuildFailed, match="unused"):
        build(Build([source]), tmp_path / "strict")
    assert build(Build([source], warnings_as_errors=False), tmp_path / "lenient").exists()


def test_a_failed_build_in_a_temporary_folder_can_be_repeated(tmp_path: Path, cache: Path) -> None:
    """That folder is gone when the message is read; of those that are kept instead, the oldest go."""
    commands = []
    for number in range(KEPT + 1):
        with TemporaryDirectory(prefix="dagc-test-") as temporary:
            folder = _project(Path(temporary) / "program")
            (folder / "main.cpp").write_text(f'#include "answer.hpp"\nint f() {{ return missing_{number}; }}\n')
            with pytest.raises(BuildFailed) as caught:
                build(Build(["main.cpp"], directory=folder), folder / "a")
        *_, remark, command = caught.value.message.splitlines()
        assert "kept" in remark
        commands.append(command)
    said = subprocess.run(commands[-1], shell=True, capture_output=True, text=True).stderr
    assert f"missing_{KEPT}" in said
    assert len(list((cache / "failed").iterdir())) == KEPT
    assert "missing_0" not in subprocess.run(commands[0], shell=True, capture_output=True, text=True).stderr


def test_a_compiler_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system does where memory runs out."""
    script = tmp_path / "cxx"
    script.write_text('#!/bin/sh\ncase "$*" in *--version*) exec g++ --version;; esac\nkill -KILL $$\n')
    script.chmod(0o755)
    monkeypatch.setenv("DAGC_CXX", str(script))
    with pytest.raises(BuildFailed, match=r"^cxx was terminated by SIGKILL \(.*memory runs out\) at main.cpp:"):
        build(Build(["main.cpp"], directory=_project(tmp_path / "p")), tmp_path / "a")


@pytest.mark.skipif(find_openblas() is None, reason="needs the wheel scipy-openblas32")
def test_openblas_of_the_wheel_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LD_LIBRARY_PATH; by nvcc, the same library."""
    folder = _project(tmp_path / "p")
    (folder / "main.cpp").write_text(
        "#include <cblas.h>\n#include <cstdio>\n"
        "#ifdef BLAS_SYMBOL_PREFIX\n#define cblas_sdot scipy_cblas_sdot\n#endif\n"
        'int main() { const float a[] = {1, 2, 3}; std::printf("%g", cblas_sdot(3, a, 1, a, 1)); }\n'
    )
    program = build(Build(["main.cpp"], directory=folder, libraries=["openblas"]), tmp_path / "a")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert _said(program) == "14"
    if find_nvcc() is not None:
        by_nvcc = build(Build(["main.cpp"], directory=folder, libraries=["openblas"], target="cuda"), tmp_path / "b")
        assert _said(by_nvcc) == "14"


def test_a_library_given_by_its_path_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not compiled as a text in C++, which takes a minute for a large one."""
    compiler = find_cxx()
    assert compiler is not None
    package = tmp_path / "scipy_openblas32"
    for file in ("__init__.py", "include/cblas.h"):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).touch()
    library = package / "lib/libscipy_openblas.so"
    library.parent.mkdir()
    command = [str(compiler.path), "-x", "c++", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=b"int some() { return 1; }", check=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DAGC_CXXFLAGS", f"-L{tmp_path}")  # what is known with other flags does not count
    toolchain.find_openblas.cache_clear()
    try:
        assert str(library) in toolchain.library_flags("openblas")
        assert toolchain.has_library("openblas")
        assert not toolchain.has_library("no_such_library")
    finally:
        toolchain.find_openblas.cache_clear()


# ---- which line says what is wrong ----

SAID = {
    "g++": """
In file included from errors/error.hpp:3,
                 from runner.cpp:12:
x.dag: In function 'void k()':
! x.dag:11:19: error: static assertion failed: m must be 4
x.dag:12:1: error: and more
cc1plus: all warnings being treated as errors
""",
    "a missing header": """
! x.cpp:1:10: fatal error: no.hpp: No such file
""",
    "a linker": """
/usr/bin/ld: /tmp/x.o: in function `main':
! x.cpp:(.text+0x9): undefined reference to `f()'
collect2: error: ld returned 1 exit status
""",
    "a library": """
! /usr/bin/ld: cannot find -lnone: No such file
collect2: error: ld returned 1 exit status
""",
    "lld": """
! ld.lld: error: undefined symbol: f()
>>> referenced by x.cpp
clang++: error: linker command failed
""",
    "nvcc": """
x.dag(9): warning #177-D: variable "error" was declared but never referenced
! x.dag(16): error: identifier "mystery" is undefined
1 error detected in the compilation of "x.cu".
""",
    "ptxas": """
ptxas info    : 0 bytes gmem
! ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes)
""",
    "nvlink": "! nvlink error   : Undefined reference to 'f' in 'x.o'",
    "nvcc alone": "! nvcc fatal   : Unsupported gpu architecture",
    "only what follows": "! collect2: error: ld returned 1 exit status",
    "neither": "\n! segmentation fault\n",
}


@pytest.mark.parametrize("tool", SAID)
def test_the_first_error_is_named(tool: str) -> None:
    (expected,) = (line[2:] for line in SAID[tool].splitlines() if line.startswith("! "))
    assert first_error(SAID[tool].replace("! ", "")) == expected
    assert first_error("") == ""


@needs_nvcc
@pytest.mark.skipif(find_mpi() is None, reason="needs an MPI")
@pytest.mark.parametrize(("sample", "level"), [("jacobi", "-Xcompiler=-Og"), ("detectors", "-O3")])
def test_host_code_that_only_issues_work_is_compiled_quickly(
    sample: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a search, not in programs; nor where a kernel runs on the CPU."""
    orders: list[Build] = []
    monkeypatch.setattr(artifacts, "build", lambda order, out: orders.append(order) or out)
    graph = read(SAMPLES / sample / f"{sample}.dag", {}).graph()
    plan = proved_plan(graph, Space(graph).first(), TargetChoice(Target.CUDA, "sm_90", ""))
    for what in ("runner", "bench"):
        artifacts.build_artifact(tmp_path, plan, what)
    levels = [
        [w for w in build_module.command_line(order, build_module.compiler_of(order)) if "-O" in w] for order in orders
    ]
    assert levels == [[level], ["-O3"]]
