"""Applications that use libraries: in C++, Python and Fortran, by CMake and pkg-config, from a wheel, in threads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.base.resources import __version__, resource
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi, thread_sanitizer_environment
from dagc.build.toolchain import find_cmake, require_cxx
from tests.library.conftest import SAMPLES, Libraries, Start, needs_mpi
from tests.precompiled import do_not_optimise

pytestmark = needs_mpi
HERE = Path(__file__).parent


def _right(text: str, ranks: int) -> None:
    assert sorted(re.findall(r"rank \d+: (?:right|wrong)", text)) == [f"rank {rank}: right" for rank in range(ranks)]


def test_two_libraries_in_one_process(libraries: Libraries, start: Start, tmp_path: Path) -> None:
    app = libraries.compile(SAMPLES / "apps/app.cpp", tmp_path / "app")
    _right(start(app).check().stdout, 4)


@pytest.mark.thorough
def test_from_python(libraries: Libraries, start: Start) -> None:
    done = start(sys.executable, SAMPLES / "apps/app.py", libraries.spmv, libraries.heat, ranks=3).check()
    _right(done.stdout, 3)


def test_samples_are_short() -> None:
    for name in ("app.cpp", "app.py"):
        assert len((SAMPLES / "apps" / name).read_text(encoding="utf-8").splitlines()) <= 60


def test_the_example_of_a_library(libraries: Libraries, start: Start, tmp_path: Path) -> None:
    api.run_setup(SAMPLES / "spmv/spmv.dag", 3, tmp_path / "data", 7, {"rows": "600"})
    source = libraries.spmv / "example/main.cpp"
    app = libraries.compile(source, tmp_path / "example", f"-I{libraries.spmv / 'src/include'}")
    said = start(app, tmp_path / "data", "2", ranks=3).check().stdout
    assert said.startswith("spmv: right; create ")
    # Other data than the reference's: the example notices.
    api.run_setup(SAMPLES / "spmv/spmv.dag", 3, tmp_path / "other", 8, {"rows": "600"})
    shutil.copy(tmp_path / "other/rank-0001/val_l.npy", tmp_path / "data/rank-0001/val_l.npy")
    done = start(app, tmp_path / "data", "1", ranks=3)
    assert done.returncode != 0
    assert "rank 1: y is wrong" in done.stderr


def test_the_example_compares_slices(tmp_path: Path) -> None:
    """Of arrays of the application; where one starts follows from the values of the rank."""
    api.compile(SAMPLES / "port/overlap.dag", tmp_path / "plate", target="host", form="library", build=False)
    text = (tmp_path / "plate/example/main.cpp").read_text(encoding="utf-8")
    assert "from = arrays.u_0_.data + (static_cast<std::int64_t>(sizes.nx));" in text
    assert "overlap: right; create" in text


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="gfortran is not installed")
def test_from_fortran(libraries: Libraries, start: Start, tmp_path: Path) -> None:
    mpi = require_mpi()
    flags = ["-std=f2008", "-O0", "-Wall", "-Werror", f"-J{tmp_path}"]
    # MPI from wheels has no Fortran functions, and an application has its own.
    helper = tmp_path / "world.o"
    compiler = [str(require_cxx().path), *mpi.compile_flags(), "-x", "c", str(HERE / "world.c")]
    subprocess.run([*compiler, "-c", "-o", str(helper)], check=True)
    words = ["gfortran", *flags, str(libraries.heat / "fortran/heat.f90"), str(HERE / "plate.f90"), str(helper)]
    words += [f"-L{libraries.heat / 'lib'}", f"-Wl,-rpath,{libraries.heat / 'lib'}", "-lheat", *mpi.link_flags()]
    subprocess.run([*words, "-o", str(tmp_path / "plate")], check=True)
    _right(start(tmp_path / "plate", ranks=2).check().stdout, 2)


@pytest.mark.thorough
@pytest.mark.skipif(find_cmake() is None, reason="CMake is not installed")
def test_cmake_builds_a_library_in_a_project(libraries: Libraries, tmp_path: Path) -> None:
    """One project with one library as a subfolder, built there and installed, and the other found as dagc built it."""
    mpi, fortran = require_mpi(), shutil.which("gfortran") is not None
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(app LANGUAGES C CXX)\n"
        f"set(SPMV_NVTX OFF)\nset(SPMV_FORTRAN {fortran:d})\n"
        f"add_subdirectory({libraries.spmv} spmv EXCLUDE_FROM_ALL)\n"
        f"find_package(heat REQUIRED PATHS {libraries.heat}/cmake NO_DEFAULT_PATH)\n"
        f"add_executable(app {SAMPLES}/apps/app.cpp)\ntarget_link_libraries(app PRIVATE spmv::spmv heat::heat)\n"
    )
    assert mpi.mpiexec is not None
    wrapper = mpi.mpiexec.parent / "mpicxx"
    if not wrapper.exists():
        pytest.skip(f"{mpi.describe()} has no mpicxx for CMake")
    options = [f"-DMPI_CXX_COMPILER={wrapper}", "-DCMAKE_CXX_FLAGS=-O0", "-DCMAKE_BUILD_TYPE=Debug"]
    built = tmp_path / "built"
    subprocess.run(["cmake", "-S", tmp_path, "-B", built, *options], check=True, capture_output=True)
    targets = ["app", *(["spmv_fortran"] if fortran else [])]
    done = subprocess.run(
        ["cmake", "--build", built, "--target", *targets], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (built / "spmv/libspmv.so").exists()
    assert (built / "app").exists()
    _check_installed(built / "spmv", tmp_path / "installed", wrapper, fortran)


def _check_installed(built: Path, to: Path, wrapper: Path, fortran: bool) -> None:
    """The installed library is found by CMake, with its version and the Fortran module, and by pkg-config."""
    subprocess.run(["cmake", "--install", built, "--prefix", to], check=True, capture_output=True)
    (library,) = to.glob("lib*/libspmv.so")
    version = ".".join(__version__.split(".")[:2])
    user = to.with_name("user")
    user.mkdir()
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user LANGUAGES C CXX)\n"
        f"find_package(spmv 99 QUIET)\nif(spmv_FOUND)\nmessage(FATAL_ERROR version)\nendif()\n"
        f"find_package(spmv {version} REQUIRED)\n"
        + ("get_target_property(modules spmv::fortran INTERFACE_INCLUDE_DIRECTORIES)\n"
           "if(NOT EXISTS ${modules}/spmv.mod)\nmessage(FATAL_ERROR module)\nendif()\n" if fortran else "")
    )  # fmt: skip
    options = [f"-DMPI_CXX_COMPILER={wrapper}", f"-DCMAKE_PREFIX_PATH={to}"]
    done = subprocess.run(["cmake", "-S", user, "-B", user, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if shutil.which("pkg-config") is not None:
        words = ["pkg-config", "--variable=libdir", "spmv"]
        environment = {**os.environ, "PKG_CONFIG_PATH": str(library.parent / "pkgconfig")}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()).resolve() == library.parent


@pytest.mark.skipif(find_cmake() is None, reason="CMake is not installed")
def test_cmake_in_a_project_without_cxx(libraries: Libraries, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(app LANGUAGES C)\n"
        f"find_package(heat REQUIRED PATHS {libraries.heat}/cmake NO_DEFAULT_PATH)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE heat::heat)\n"
        f"add_subdirectory({libraries.spmv} spmv EXCLUDE_FROM_ALL)\nadd_executable(other EXCLUDE_FROM_ALL main.c)\n"
        "target_link_libraries(other PRIVATE spmv::spmv)\n"  # generated, not built
    )
    (tmp_path / "main.c").write_text('#include "heat.h"\nint main(void) { return heat_run(0, 1) == HEAT_GOOD; }\n')
    mpi, built = require_mpi(), tmp_path / "built"
    assert mpi.mpiexec is not None
    wrapper = mpi.mpiexec.parent / "mpicc"
    if not wrapper.exists():
        pytest.skip(f"{mpi.describe()} has no mpicc for CMake")
    compilers = f"-DMPI_C_COMPILER={wrapper}", f"-DMPI_CXX_COMPILER={wrapper.with_name('mpicxx')}"
    words = ["cmake", "-S", tmp_path, "-B", built, *compilers]
    for command in (words, ["cmake", "--build", built]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
def test_pkg_config(libraries: Libraries) -> None:
    words = ["pkg-config", "--cflags", "--libs", "spmv", "heat"]
    path = os.pathsep.join(str(folder) for folder in (libraries.spmv, libraries.heat))
    done = subprocess.run(
        words, env={**os.environ, "PKG_CONFIG_PATH": path}, capture_output=True, text=True, check=True
    )
    for folder in (libraries.spmv, libraries.heat):
        assert f"-I{folder}/include" in done.stdout
        assert f"-L{folder}/lib -l{folder.name}" in done.stdout.replace(f" -Wl,-rpath,{folder}/lib", "")


@pytest.mark.skipif(not Path("/usr/local/cuda/include/nvtx3").exists(), reason="the headers of NVTX are not installed")
def test_ranges_for_profilers(tmp_path: Path) -> None:
    """With DAGC_NVTX each op is a range, which ends where the next begins. The header calls what a profiler injects."""
    ops, profiler = tmp_path / "ops", tmp_path / "profiler.so"
    words = [str(require_cxx().path), "-std=c++17", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    words += [f"-I{resource('templates/runtime')}", "-isystem", "/usr/local/cuda/include"]
    words.append(str(HERE / "ranges.cpp"))
    subprocess.run([*words, "-o", str(ops), "-ldl"], check=True)
    subprocess.run([*words, "-DPROFILER", "-shared", "-fPIC", "-o", str(profiler)], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(profiler)}
    done = subprocess.run([ops], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["push:a", "pop", "push:b", "pop"]


def test_only_the_interface_is_visible(libraries: Libraries) -> None:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", libraries.spmv / "lib/libspmv.so"], capture_output=True, text=True
    )
    names = {line.split()[2] for line in out.stdout.splitlines() if line.split()[1] == "T"}
    wanted = (
        "create_for create_f run enqueue rebind destroy refuse error warnings choices scratch_bytes scratch_bytes_f"
    )
    assert names == {f"spmv_{name}" for name in wanted.split()}


@pytest.mark.thorough
def test_a_wheel(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed elsewhere, without dagc on the path; from the file of an exploration, too, it is the same step."""
    do_not_optimise(monkeypatch, "-Werror")
    done = api.compile(
        SAMPLES / "heat/heat.dag", tmp_path / "heat", target="host", form="wheel", name="plates",
        defines={"transport": "mpi_host"},
    )  # fmt: skip
    assert done.binary is not None
    assert done.binary.name.startswith("plates-")
    assert f"use        pip install {done.binary}, then import plates\n" in done.render()
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", site, done.binary], check=True)
    script = "import plates, sys; print(sorted(plates.ARRAYS), 'dagc' in sys.modules)"
    said = start(sys.executable, "-c", script, ranks=1, PYTHONPATH=str(site)).check().stdout
    assert said == "['result', 'u_0_', 'u_1_'] False\n"


@pytest.mark.thorough
def test_an_instance_in_each_thread(start: Start, tmp_path: Path, libraries: Libraries) -> None:
    """Two threads and their instances, and the sample application, under ThreadSanitizer."""
    mpi = require_mpi()
    built = []
    for folder in (libraries.spmv, libraries.heat):
        copy = tmp_path / folder.name
        shutil.copytree(folder, copy)
        order = Build(
            [copy / f"src/{folder.name}.cpp"], directory=copy, include=("include", "src/include"), mpi=mpi,
            shared=True, sanitize="thread", flags=("-fvisibility=hidden",),
        )  # fmt: skip
        build(order, copy / f"lib/lib{folder.name}.so")
        built.append(copy)
    headers = f"-I{libraries.spmv / 'src/include'}"
    for source in (HERE / "threads.cpp", SAMPLES / "apps/app.cpp"):
        app = Libraries(*built).compile(source, tmp_path / source.stem, "-fsanitize=thread", "-g1", headers)
        done = start(app, ranks=2, **thread_sanitizer_environment(mpi))
        assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
        _right(done.check().stdout, 2)


@pytest.mark.thorough
def test_address_sanitizer_is_silent(start: Start, tmp_path: Path, libraries: Libraries) -> None:
    """The sample application and its libraries as one program: also what is undefined, and what is not freed."""
    spmv, heat = libraries.spmv, libraries.heat
    include = [folder / more for folder in (spmv, heat) for more in ("include", "src/include")]
    order = Build(
        [spmv / "src/spmv.cpp", heat / "src/heat.cpp", SAMPLES / "apps/app.cpp"], mpi=require_mpi(),
        include=tuple(map(str, include)), sanitize="address,undefined", flags=("-O0",),
    )  # fmt: skip
    app = build(order, tmp_path / "app")
    done = start(app, ASAN_OPTIONS="exitcode=66 detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1 exitcode=66")
    assert "Sanitizer" not in done.stderr + done.stdout, done.stderr[:4000]
    _right(done.check().stdout, 4)


@pytest.mark.thorough
def test_iterations_that_overlap(start: Start, tmp_path: Path) -> None:
    """`run(n)` is n times `run(1)`, of a program whose next iteration needs the results of this one, in a graph of the
    library, in one of the application, and outside of them; under ThreadSanitizer. Two streams, and an op of the CPU in
    a worker thread."""
    mpi, ring = require_mpi(), tmp_path / "ring"
    order = "own@s1 pack@s0 move@s0 record(e0)@s1 wait(e0)@s0 most@s0 add@s0 last@s1 record(e1)@s0 record(e2)@s1"
    order = order.replace("last@s1", "record(e3)@s0 wait(e3)@s1 came@s1 last@s1 back@s1") + " sync(e1) sync(e2) end"
    (tmp_path / "order.txt").write_text(order)
    api.compile(
        HERE / "data/ring.dag", ring, target="host", form="library", build=False, defines={"transport": "peer"},
        traversal=str(tmp_path / "order.txt"),
    )  # fmt: skip
    order = Build(  # one program: on the host target, a shared library has streams of its own
        [ring / "src/ring.cpp", HERE / "ring.cpp"], mpi=mpi, sanitize="thread", flags=("-O1",),
        include=(str(ring / "include"), str(ring / "src/include"), str(SAMPLES / "apps")), defines=("DAGC_LIBRARY",),
    )  # fmt: skip
    app = build(order, tmp_path / "app")
    done = start(app, ranks=4, **thread_sanitizer_environment(mpi))
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    _right(done.check().stdout, 4)


@pytest.mark.thorough
def test_a_repetition_that_ends_by_itself(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_optimise(monkeypatch, "-Werror")
    api.compile(
        HERE.parent / "emit/data/newton.dag", tmp_path / "newton", target="host", form="library",
    )  # fmt: skip
    script = (
        "import dagc, sys, numpy as np; from mpi4py import MPI; rank = MPI.COMM_WORLD.rank\n"
        "a, residual = np.arange(1.0, 101) * (1 + rank), np.ones(1); x = a.copy()\n"
        "newton = dagc.load_library(sys.argv[1])\n"
        "values = dict(tolerance=1e-9, odd=-1, a=a, x=x, residual=residual)\n"
        "with newton.Instance(MPI.COMM_WORLD, **values) as instance: runs = instance.solve()\n"
        "good = np.allclose(x * x, a) and residual[0] < 1e-9 and 3 < runs < 30 and runs.converged\n"
        "values['tolerance'] = -1.0\n"
        "with newton.Instance(MPI.COMM_WORLD, **values) as instance: runs = instance.solve()\n"
        "good = good and runs == 30 and not runs.converged\n"
        'print(f\'rank {rank}: {"right" if good else "wrong"}\')'
    )
    _right(start(sys.executable, "-c", script, tmp_path / "newton", ranks=2).check().stdout, 2)


@pytest.mark.thorough
def test_names_that_languages_keep(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interfaces in C, C++, Fortran and Python of a program of such names, of all types, without a message."""
    do_not_optimise(monkeypatch, "-Wall", "-Wextra", "-Werror")
    folder, mpi = tmp_path / "names", require_mpi()
    api.compile(HERE / "data/names.dag", folder, target="host", form="library")
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", *mpi.compile_flags()]
    strict += [f"-I{folder / 'include'}", f"-I{folder / 'src/include'}"]
    header, example = folder / "include/Names.h", folder / "example/main.cpp"
    commands = [["-std=c99", "-x", "c", str(header)], ["-std=c++17", str(example)]]
    for command in commands:
        subprocess.run([str(require_cxx().path), *strict, *command], check=True)
    if shutil.which("gfortran") is not None:
        words = ["gfortran", "-std=f2003", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-J{tmp_path}"]
        subprocess.run([*words, str(folder / "fortran/Names.f90")], check=True)
    script = (
        "import dagc, sys, numpy as np; from mpi4py import MPI\n"
        "types = {'bool': '?', 'f32': 'f4', 'f64': 'f8', 'u8': 'u1', 'u32': 'u4'}\n"
        "names = dagc.load_library(sys.argv[1])\n"
        "sizes = {**dict.fromkeys(names.SIZES, 1), 'n': 3, 'half': 0.1, '_x': 0.1}\n"
        "arrays = {name: np.ones(6, types[kind]) for name, (kind, *_) in names.ARRAYS.items()}\n"
        "with names.Instance(MPI.COMM_WORLD, **sizes, **arrays) as instance: instance.run(20)\n"
        "good = (arrays['all'] == [4, 4, 4, 1, 1, 1]).all()\n"
        "sizes['n'] = -1\n"
        "try: names.Instance(MPI.COMM_WORLD, **sizes, **arrays)\n"
        "except names.Error as error: good = good and error.code == 2 and 'is negative: -1' in str(error)\n"
        "else: good = False\n"
        'print(f\'rank 0: {"right" if good else "wrong"}\')'
    )
    _right(start(sys.executable, "-c", script, folder, ranks=1).check().stdout, 1)


def test_a_folder_without_a_library(tmp_path: Path, libraries: Libraries) -> None:
    with pytest.raises(UsageError, match="has no library in it"):
        api.load_library(tmp_path)
    shutil.copytree(libraries.heat / "python", tmp_path / "python")
    with pytest.raises(UsageError, match=r"libheat\.so is missing"):
        api.load_library(tmp_path)


PUT_APP = """
import sys
import numpy as np
from mpi4py import MPI
import dagc
comm, put = MPI.COMM_WORLD, dagc.load_library(sys.argv[1])
a = np.arange(8.0) + 100 * comm.rank
other = np.arange(8.0) + 100 * (1 - comm.rank)
with put.Instance(comm, left=1 - comm.rank, right=1 - comm.rank, a=a) as instance:
    for run in range(3):
        instance.run(run + 1)
for run in range(6):
    a_then = other + 2 * ((np.arange(8.0) + 100 * comm.rank) if run == 0 else mine)
    mine = ((np.arange(8.0) + 100 * comm.rank) if run == 0 else mine) + 2 * other
    other = a_then
print(f"rank {comm.rank}: {'right' if (a == mine).all() else 'wrong'}")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("wait", ["op", "reader"])
def test_kernels_write_into_arrays_of_a_library(
    wait: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_optimise(monkeypatch, "-Werror")
    defines = {"transport": "put", "put_wait": wait}
    api.compile(HERE / "data/put.dag", tmp_path / "put", target="host", form="library", defines=defines)
    (tmp_path / "app.py").write_text(PUT_APP)
    _right(start(sys.executable, tmp_path / "app.py", tmp_path / "put", ranks=2).check().stdout, 2)


def test_other_ranks_cannot_write_memory_of_the_application_on_the_host(tmp_path: Path) -> None:
    defines = {"transport": "put", "owned": "false"}
    with pytest.raises(UsageError, match=r"put.dag:17:\d+: .*other ranks cannot write `rcv` of the application") as why:
        api.compile(HERE / "data/put.dag", tmp_path / "put", target="host", form="library", defines=defines)
    assert "receive in an array of the library" in str(why.value.help)
    api.compile(
        HERE / "data/put.dag",
        tmp_path / "cuda",
        target="cuda",
        form="library",
        defines=defines,
        build=False,
        arch="sm_90",
    )
