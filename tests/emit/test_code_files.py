"""Code that exists: functions of the user's own files, compiled as they are, each file by itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import BuildFailed, ProgramError
from dagc.base.source import Source
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cmake, find_cxx, find_nvcc
from dagc.emit import linked
from dagc.ir.plan import Target, plan_inputs, plan_to_json, program_hash
from dagc.ir.program import Program
from dagc.lang.lower import lower, parse_with_includes
from tests.emit.build import ROOT, plan, write
from tests.precompiled import precompiled_flags
from tests.tiers import representatives

CODE = Path(__file__).parent / "data/code"
PROGRAM = CODE / "code.dag"
STRICT = ("-O0", "-Wall", "-Wextra", "-Werror")

needs_mpi = pytest.mark.skipif(find_mpi() is None, reason="needs an MPI")
needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The program and its files, to be changed."""
    return Path(shutil.copytree(CODE, tmp_path / "code")) / "code.dag"


def program_of(path: Path, texts: dict[str, str] | None = None) -> Program:
    text = path.read_text(encoding="utf-8") if texts is None else texts[str(path)]
    return lower(parse_with_includes(Source(str(path), text), texts))


# ---- good programs ------------------------------------------------------------------------------


@needs_mpi
@needs_cxx
def test_it_runs_on_ranks_and_agrees_with_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was written stands alone: nothing is read where the program was."""
    monkeypatch.setenv("DAGC_CXXFLAGS", " ".join([*STRICT, *precompiled_flags()]))
    done = api.compile(PROGRAM, tmp_path / "out", target="host", run=True, ranks=2, seconds=0.001, repeats=2)
    assert done.result is not None
    assert (tmp_path / "out/code/inc/grid.cuh").read_text().endswith((CODE / "inc/grid.cuh").read_text())


@needs_mpi
@needs_cxx
@pytest.mark.skipif(find_cmake() is None, reason="needs cmake")
@pytest.mark.thorough
def test_the_directory_builds_without_dagc(tmp_path: Path) -> None:
    cmake, mpi = find_cmake(), require_mpi()
    assert cmake is not None
    write(plan(PROGRAM, Target.HOST), tmp_path)
    (tmp_path / "bench.cpp").write_text("int main() {}")  # its build is tested elsewhere
    found = [f"-DMPI_CXX_COMPILER={mpi.mpiexec.parent / 'mpicxx'}"] if mpi.mpiexec is not None else []
    found += ["-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
    subprocess.run([str(cmake.path), "-S", ".", "-B", "build", *found], cwd=tmp_path, check=True)
    subprocess.run([str(cmake.path), "--build", "build", "--target", "bench"], cwd=tmp_path, check=True)
    assert (tmp_path / "build/bench").exists()


@needs_mpi
@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.thorough
def test_nvcc_takes_the_files_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it compiles what people write: launches, a static kernel, a template, C++ beside it; warnings are errors."""
    monkeypatch.setenv("DAGC_NVCCFLAGS", "-O0 -Xptxas=-O0 --Werror all-warnings")
    done = api.compile(PROGRAM, tmp_path, target="cuda", arch="sm_90")
    text = (tmp_path / "code/heat.cu").read_text()
    assert text.partition("\n")[2] == (CODE / "heat.cu").read_text()
    assert done.binary == tmp_path / "bench"
    assert done.binary.is_file()


@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.parametrize("variant", representatives(["transform", "transform_cublas"], "transform_cublas"))
def test_library_functions_on_the_stream(variant: str, tmp_path: Path) -> None:
    """The files of a sample with its library, linked as a whole; the main program is compiled by others."""
    made = plan(ROOT / "samples/gnn/gcn.dag", Target.CUDA, **{"layer.gpu.variant": variant})
    write(made, tmp_path)
    (tmp_path / "main.cpp").write_text("int main() {}")
    others = linked(made)
    assert others.libraries == (("cublas",) if "cublas" in variant else ())
    order = Build(
        [tmp_path / "main.cpp", *(tmp_path / name for name in others.sources)], target="cuda",
        include=("include", *others.include), libraries=others.libraries, flags=("-O0",),
    )  # fmt: skip
    built = build(order, tmp_path / "main")
    assert built.is_file()


def test_a_variant_that_is_not_taken_is_neither_compiled_nor_linked(copied: Path) -> None:
    text = copied.read_text().replace("plain.hosted(d, c, ny, nx)", "plain(d, c, ny, nx)")
    copied.write_text(text.replace("cpp launch_it from", 'link "nowhere" cpp launch_it from'))
    (copied.parent / "sum.cpp").write_text("void norm(double*, const double*, long) {}")
    files = api.compile(copied, copied.parent / "out", target="host", build=False)
    made = (files.directory / "CMakeLists.txt").read_text()
    assert "unit_heat.cpp" in made
    assert "nowhere" not in made


def test_a_main_of_an_included_file_is_another(copied: Path) -> None:
    """As of a file of one's own that defines macros and includes the program that there was."""
    shutil.move(copied.parent / "heat.cu", copied.parent / "before.cu")
    (copied.parent / "heat.cu").write_text('#define NX 64\n#include "before.cu"\n')
    files = api.compile(copied, copied.parent / "out", target="host", build=False)
    text = (files.directory / "unit_heat.cpp").read_text()
    assert text.index("#define main main_of_unit_heat") < text.index('code/heat.cu"')


# ---- the files belong to the program -------------------------------------------------------------


@pytest.mark.parametrize("name", ["heat.cu", "sum.cpp", "twice.cpp", "twice.h", "inc/grid.cuh"])
def test_a_file_belongs_to_the_program(copied: Path, name: str) -> None:
    """By its tokens: to its hash, by which measurements are stored, and to `plan.json`."""
    before = program_hash(program_of(copied))
    file = copied.parent / name
    text = file.read_text()
    file.write_text(f"/* of\n another */ // layout\n\n{text}\t// and here\n")
    assert program_hash(program_of(copied)) == before
    file.write_text(f"{text}\nextern int other;\n")
    assert program_hash(program_of(copied)) != before


def test_a_plan_needs_no_files(copied: Path) -> None:
    made = plan(PROGRAM, Target.HOST)
    texts = plan_inputs(plan_to_json(made)).sources
    path = Path(made.program.path)
    again = program_of(path, {k: v.replace("2 * in", "3 * in") for k, v in texts.items()})
    assert again.files == made.program.files
    assert again.directories == made.program.directories
    assert program_hash(program_of(path, texts)) == program_hash(made.program) != program_hash(again)


def test_a_header_of_a_folder_given_with_i(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the program's directory, too: files keep their places relative to each other."""
    shutil.move(copied.parent / "inc", copied.parent.parent / "inc")
    copied.write_text(copied.read_text().replace('include "inc/"', ""))
    assert [f.name for f in program_of(copied).files if "grid" in f.name] == []  # left to the compiler
    monkeypatch.setenv("DAGC_INCLUDE", str(copied.parent.parent / "inc"))
    found = program_of(copied)
    assert "_I/grid.cuh" in [f.name for f in found.files]
    assert "_I" in found.directories
    monkeypatch.delenv("DAGC_INCLUDE")  # a plan has the texts, wherever they were found
    again = program_of(copied, {path: source.text for path, source in found.sources.items()})
    assert (again.files, set(again.directories)) == (found.files, set(found.directories))
    monkeypatch.setenv("DAGC_INCLUDE", str(copied.parent.parent / "inc"))
    heat = copied.parent / "heat.cu"
    heat.write_text(heat.read_text().replace('"grid.cuh"', '"../inc/grid.cuh"'))
    names = [f.name for f in program_of(copied).files]
    assert "inc/grid.cuh" in names
    assert "below/heat.cu" in names


def test_files_of_an_included_text_are_beside_it(copied: Path) -> None:
    folder = copied.parent / "sub"
    folder.mkdir()
    shutil.move(copied.parent / "sum.cpp", folder / "sum.cpp")
    text = copied.read_text()
    start, stop = text.index("kernel norm"), text.index("kernel double_it")
    (folder / "norm.dag").write_text(text[start:stop])
    copied.write_text(text[:start] + 'include "sub/norm.dag"\n' + text[stop:])
    assert "sub/sum.cpp" in [f.name for f in program_of(copied).files]


# ---- mistakes -----------------------------------------------------------------------------------


def failure(path: Path, unit: str) -> str:
    """What is said when one of the files does not compile."""
    out = path.parent / "out"
    api.compile(path, out, target="host", build=False)
    with pytest.raises(BuildFailed) as info:
        include = ("include", *linked(plan(PROGRAM, Target.HOST)).include)
        build(Build([out / unit], mpi=require_mpi(), include=include, flags=("-O0", "-fsyntax-only")), out / "unit.o")
    return f"{info.value}\n{info.value.help}"


@needs_mpi
@needs_cxx
def test_the_compiler_names_the_users_file_and_line(copied: Path) -> None:
    heat = copied.parent / "heat.cu"
    line = heat.read_text().split("\n").index("int main(int argc, char**) {") + 2
    heat.write_text(heat.read_text().replace('  std::printf("%d\\n", argc);', "  return wrong;"))
    assert f"{heat}:{line}:10: error" in failure(copied, "unit_heat.cpp")


@needs_mpi
@needs_cxx
def test_a_function_with_other_parameters(copied: Path) -> None:
    """The place is that of the implementation in the program."""
    line = next(n for n, t in enumerate(copied.read_text().split("\n"), 1) if "norm from" in t)
    file = copied.parent / "sum.cpp"
    file.write_text(file.read_text().replace("double* out", "float* out"))
    shown = failure(copied, "unit_sum.cpp")
    assert f"{copied}:{line}:" in shown
    assert "`f64[n, 4]` for `double4`" in shown


@needs_mpi
@needs_cxx
def test_rows_that_are_not_the_struct(copied: Path) -> None:
    """An array of rows passes as a pointer to structs of the size of a row."""
    heat = copied.parent / "heat.cu"
    heat.write_text(heat.read_text().replace("float first, last;", "float first, middle, last;"))
    shown = failure(copied, "unit_heat.cpp")
    assert "another size than the rows of the array" in shown
    assert "`f64[n, 4]` for `double4`" in shown
    line = next(n for n, t in enumerate(copied.read_text().split("\n"), 1) if "cuda ends from" in t)
    assert f"{copied}:{line}:" in shown


@needs_cxx
@pytest.mark.parametrize(
    ("text", "libraries", "message"),
    [
        ("void f(int);\nint main() { f(0); }", (), "undefined reference to `f(int)'"),
        ("int main() {}", ("nowhere_at_all",), "cannot find -lnowhere_at_all"),
    ],
)
def test_what_a_linker_misses_is_named(tmp_path: Path, text: str, libraries: tuple[str, ...], message: str) -> None:
    (tmp_path / "main.cpp").write_text(text + "\n// " + "\n// ".join("abcdefgh"))
    with pytest.raises(BuildFailed) as info:
        build(Build([tmp_path / "main.cpp"], libraries=libraries), tmp_path / "main")
    assert message in str(info.value)


def test_a_file_that_is_no_text(copied: Path) -> None:
    (copied.parent / "inc/grid.cuh").write_bytes("#pragma once".encode("utf-16"))
    with pytest.raises(ProgramError, match=r"`grid.cuh` is not a text: it has a NUL"):
        program_of(copied)


def test_files_that_are_too_large(copied: Path) -> None:
    for n in range(9):
        (copied.parent / f"h{n}.h").write_text("//" + "x" * (500 << 10) + "\n" + (f'#include "h{n + 1}.h"\n' * (n < 8)))
    (copied.parent / "twice.h").write_text('#include "h0.h"\n')
    with pytest.raises(ProgramError, match="the files of code are larger than 4 MiB"):
        program_of(copied)


def test_a_kernel_in_another_form_has_a_name_that_its_file_does_not_define(tmp_path: Path) -> None:
    """The file is compiled for another kernel, and nvcc's part of a kernel for the host has one name in both."""
    head = "__global__ void {}(double* x, int n) {{ int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] += 1; }}\n"
    (tmp_path / "a.cu").write_text(head.format("one") + "__global__ void other(double* x, int n) { *x *= n; }\n")
    launch = 'launch grid(ceil(n / 64)) block(64)  cuda {0} from "a.cu"'
    kernel = f"kernel {{0}}(x: inout f64[n], n: i32) {{{{ gpu {{{{ {launch} }}}} }}}}\n"
    (tmp_path / "p.dag").write_text(
        "program p\narray x : f64[640] inout\n" + kernel.format("one") + kernel.format("other")
        + "dag { a : gpu one(x, 640)  b : gpu other(x, 640) }\n"
    )  # fmt: skip
    defines = {"a.form.wide": 2}
    api.compile(tmp_path / "p.dag", tmp_path / "out", defines=defines, target="cuda", build=False)
    assert "__global__ void one_text(" in (tmp_path / "out/kernels.cu").read_text()
    api.compile(tmp_path / "p.dag", tmp_path / "host", defines=defines, target="host", build=False)
    assert "void one(" in (tmp_path / "host/kernels.cu").read_text()
