"""Features of the input: what a selector asks for, computed by the program, the same in Python."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError, UsageError
from dagc.choice.choose import Chooser
from dagc.choice.feature import asked_features, offered, values_of
from dagc.choice.legal import op_of, open_sites
from dagc.ir.program import Graph
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import ExploreOptions, TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.tuned import choosers_of
from tests.precompiled import by_clang

pytestmark = pytest.mark.usefixtures("unoptimised")

PROGRAM = '''program sums
param N : i64 = 500 over {200, 500, 1000, 2000, 3000}
setup "sums.py" matrix(N)
scalar n, nnz : i32
array row_ptr : i32[n + 1] const
array val : f32[nnz] const
array y : f32[n] out
kernel sums(y: out f32[n], row_ptr: in i32[n + 1], val: in f32[nnz], n, nnz: i32) {
  tune bx in {32, 64, 128}
  feature mean = nnz / n
  feature longest cost n = cpp """
    int most = 0;
    for (int i = 0; i < n; ++i) most = std::max(most, row_ptr[i + 1] - row_ptr[i]);
    return most;
  """
  feature excess = longest - mean
  select bx with SELECT
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      float s = 0;
      for (int k = row_ptr[i]; k < row_ptr[i + 1]; ++k) s += val[k];
      y[i] = s;
    """
  }
}
dag { rows : gpu sums(y, row_ptr, val, n, nnz) }
verify y ~ reference() rtol 1e-5
'''
SETUP = """import numpy as np

def matrix(rank, size, seed, N):
    lengths = np.random.default_rng(N + rank).integers(1, 2 + N // 100, N)
    lengths[N // 2] += 3 * N // 100
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return {"n": N, "nnz": int(ptr[-1]), "row_ptr": ptr, "val": np.ones(ptr[-1], np.float32)}

def reference(data, **_):
    return {"y": np.diff(data["row_ptr"]).astype(np.float32)}
"""


def written(folder: Path, select: str, program: str = PROGRAM) -> Path:
    (folder / "sums.py").write_text(SETUP)
    path = folder / "sums.dag"
    path.write_text(program.replace("SELECT", select))
    return path


def graph_of(folder: Path, select: str, program: str = PROGRAM) -> Graph:
    return api.load_graph(written(folder, select, program))


def names(graph: Graph) -> list[str]:
    kernel = graph.program.kernels[0]
    return [f.name for f in asked_features(graph.program, op_of(graph, open_sites(graph)[0]), kernel.selects[0].args)]


def test_each_kind_is_offered_and_has_its_value(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tree(n, mean, longest, excess, n * nnz, 2 * 3)")
    assert names(graph) == ["n", "mean", "longest", "excess", "n * nnz"], "what never differs is none"
    known = offered(graph.program, op_of(graph, open_sites(graph)[0]))
    values = {"n": 3, "nnz": 7, "feature.rows.longest": 4.0}
    found = values_of(known, values)
    assert found["mean"] == 7 / 3
    assert (found["excess"], found["n * nnz"], found["longest"]) == (4 - 7 / 3, 21, 4)
    assert "excess" not in values_of(known, {"n": 3, "nnz": 7}), "not known before it is computed"
    assert math.isnan(known["mean"].value({"n": 0, "nnz": 7})), "0 rows have no mean"


@pytest.mark.parametrize(
    ("select", "program", "message"),
    [
        ("tree(bx)", PROGRAM, "asks for `bx`, which is not known before the dag runs"),
        ("tree(longest)", PROGRAM.replace("most = 0;", "most = bx;"), "depends on `bx`, which it is used to choose"),
        (
            "tree(longest)",
            PROGRAM.replace("most = 0;", "most = y[0];"),
            "feature `longest` reads `y`, which the kernel w",
        ),
    ],
)
def test_what_is_no_feature(select: str, program: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, ProgramError), match=message):
        names(graph_of(tmp_path, select, program))
    with pytest.raises((UsageError, ProgramError), match=message):
        tune_recipe.tune(tmp_path / "sums.dag", tmp_path / "t.db", TuneOptions(target="host"))
    assert not (tmp_path / "t.db").exists()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tuned, and then given labels that its features tell apart, as times of the host target do not."""
    folder = tmp_path_factory.mktemp("tuned")
    path = written(folder, "tree(mean, excess)")
    options = TuneOptions(target="host", cell=0.005)
    done = tune_recipe.tune(path, folder / "t.db", options)
    assert not done.failures
    assert any("rows.longest takes up to" in note for note in done.notes)
    assert any("by mean, excess; leave one out" in note for note in done.notes)
    with sqlite3.connect(folder / "t.db") as connection:
        (text,) = connection.execute("SELECT chooser FROM chooser").fetchone()
        record = json.loads(text)
        assert record["data"] == ["excess", "mean", "n"], "n: of the grid's limits"
        assert len(record["anchors"]) == 5
        assert all(isinstance(a["data"][2], int) and a["data"][0] > 0 for a in record["anchors"])
        record |= {"anchors": [], "selector": {**record["selector"], "tree": [1, 40.5, [0, 5, 2, 0], 1]}}
        connection.execute("UPDATE chooser SET chooser = ?", (json.dumps(record),))
    return folder


def test_the_program_computes_its_features_and_chooses_as_python_does(tuned: Path) -> None:
    (chooser,) = choosers_of(api.load_graph(tuned / "sums.dag"), load_tuned(tuned / "t.db"))
    assert isinstance(chooser, Chooser)
    done = api.compile(
        tuned / "sums.dag", tuned / "out", target="host", launch=str(tuned / "t.db"), run=True, ranks=2, repeats=2
    )
    assert done.result is not None
    program = (tuned / "out" / "program.hpp").read_text()
    assert "once(0);" in program
    source = tuned / "out" / "ask.cpp"
    source.write_text(
        '#include "iteration.hpp"\n'
        "int main(int argc, char** argv) {\n  MPI_Init(&argc, &argv);\n  {\n"
        "    Program p;\n    p.load(argv[1], MPI_COMM_WORLD, 1, 1);\n"
        '    std::printf("%.17g %d\\n", p.feature(0).value(), static_cast<int>(p.rows_bx));\n'
        "  }\n  MPI_Finalize();\n}\n"
    )
    said = []
    for n in (200, 1000, 1800, 3000):
        data = tuned / f"data-{n}"
        api.run_setup(tuned / "sums.dag", 1, data, defines={"N": n})
        found = asked(source, tuned / "out" / "ask", data)
        rows, values = expected(data)
        assert found[0] == rows
        assert found[1] == chooser.choices[chooser.choose(values)].own["bx"]
        said.append(found[1])
    assert set(said) == {32, 64, 128}, "all answers of the tree came out"


def test_a_library_chooses_for_the_arrays_of_its_caller(tuned: Path) -> None:
    """At create, and again at rebind, which creates the program anew."""
    from dagc.build.mpi import require_mpi
    from dagc.build.toolchain import require_cxx

    (chooser,) = choosers_of(api.load_graph(tuned / "sums.dag"), load_tuned(tuned / "t.db"))
    assert isinstance(chooser, Chooser)
    folder = tuned / "library"
    api.compile(tuned / "sums.dag", folder, target="host", launch=str(tuned / "t.db"), form="library", build=False)
    main = folder / "src/main.cpp"
    main.write_text(
        '#define DAGC_LIBRARY 1\n#include "sums.h"\n#include "dagc/capture.hpp"\n#include "iteration.hpp"\n'
        "int main(int argc, char** argv) {\n  MPI_Init(&argc, &argv);\n"
        "  for (int mean : {1, 10, 30, 60}) for (int most : {60, 70, 500}) {\n"
        "    std::vector<int> ptr(101);\n"
        "    for (int i = 0; i < 100; ++i) ptr[i + 1] = ptr[i] + (i == 7 ? most : mean);\n"
        "    std::vector<float> val(ptr[100]), y(100);\n"
        "    sums_sizes sizes{100, ptr[100]};\n"
        "    sums_arrays arrays{{ptr.data(), 101}, {val.data(), ptr[100]}, {y.data(), 100}};\n"
        "    sums_library::Program p;\n    p.create(MPI_COMM_WORLD, &sizes, &arrays, false, 1, 1);\n"
        '    std::printf("%d %d %d\\n", ptr[100], most, static_cast<int>(p.rows_bx));\n  }\n  MPI_Finalize();\n}\n'
    )
    mpi = require_mpi()
    words = [str(require_cxx().path), "-std=c++17", "-O0", "-pthread", f"-I{folder}/include", f"-I{folder}/src/include"]
    words += by_clang()
    words += [*mpi.compile_flags(), str(main), "-o", str(folder / "ask"), *mpi.link_flags()]
    subprocess.run(words, check=True)
    out = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True).stdout.splitlines()
    said = []
    for line in out:
        nnz, longest, bx = (int(word) for word in line.split())
        values = {"n": 100, "nnz": nnz, "feature.rows.longest": float(longest)}
        assert chooser.choices[chooser.choose(values)].own["bx"] == bx
        said.append(bx)
    assert len(said) == 12
    assert len(set(said)) > 1


def expected(data: Path) -> tuple[float, dict[str, float]]:
    """What NumPy says of the arrays: the longest row; and what the chooser is to be given."""
    import numpy as np

    ptr = np.load(data / "rank-0000" / "row_ptr.npy")
    longest = float(np.diff(ptr).max())
    return longest, {"n": len(ptr) - 1, "nnz": int(ptr[-1]), "feature.rows.longest": longest}


def asked(source: Path, program: Path, data: Path) -> tuple[float, int]:
    from dagc.build.builder import Build, build
    from dagc.build.mpi import require_mpi

    if not program.exists():
        build(Build([source], target="host", mpi=require_mpi(), flags=("-O0", *by_clang())), program)
    out = subprocess.run([program, data], check=True, capture_output=True, text=True).stdout.split()
    return float(out[0]), int(out[1])


def test_a_file_that_asks_for_a_feature_of_another_program_is_refused(tuned: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "t.db"
    shutil.copy(tuned / "t.db", copy)
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE chooser SET chooser = replace(chooser, '\"excess\"', '\"system(1); //\"')")
    with pytest.raises(
        UsageError, match=r"is chosen by system\(1\); //, which is neither a size nor a feature of the program"
    ):
        choosers_of(api.load_graph(tuned / "sums.dag"), load_tuned(copy))


def test_a_feature_that_crashes_ends_nothing(tmp_path: Path) -> None:
    bad = PROGRAM.replace("int most = 0;", "int most = 0; *(volatile int*)8 = n;")
    path = written(tmp_path, "tree(longest)", bad)
    done = tune_recipe.tune(path, None, TuneOptions(sizes="N=200,500,1000", target="host", cell=0.005))
    assert done.cells == 9
    where = "in feature `longest` of op `rows` (kernel `sums`)"
    assert [n for n in done.notes if f"no features: rank 0: terminated by SIGSEGV (a bad address) {where}" in n]
    assert [n for n in done.notes if n.startswith("rows: no tree: ")]
    assert not [n for n in done.notes if "to compute" in n]


def test_a_search_without_the_compiled_program_keeps_the_default(tuned: Path, tmp_path: Path) -> None:
    options = ExploreOptions(
        ranks=1, target="host", launch=str(tuned / "t.db"), budget=1, confirm=1, repeats=1, seconds=1e-4, quiet=True
    )
    done = api.explore(tuned / "sums.dag", tmp_path / "r.db", options)
    assert done is not None
    assert any(n.startswith("rows: the default stays: only the compiled program computes") for n in done.notes)
    assert done.configuration is not None
    assert done.configuration.get("rows.bx") == 32


def test_a_size_without_a_finite_feature_is_not_learned_from(tmp_path: Path) -> None:
    bad = PROGRAM.replace("nnz / n", "nnz / (n - 500)")
    done = tune_recipe.tune(
        written(tmp_path, "tree(mean)", bad), tmp_path / "t.db",
        TuneOptions(sizes="N=200,500,1000", target="host", cell=0.005),
    )  # fmt: skip
    (note,) = [n for n in done.notes if n.startswith("rows: no tree: ")]
    assert "2 different sizes measured in full (a feature is not finite or was not computed at 1 more), 3 are" in note
    assert load_tuned(tmp_path / "t.db").kernel_choosers["rows"].selector is None


def test_too_many_features_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    many = ", ".join(f"n + {i}" for i in range(1, 18))
    with pytest.raises(UsageError, match="asks for 17 features"):
        tune_recipe.tune(written(tmp_path, f"tree({many})"), tmp_path / "t.db", TuneOptions(target="host"))


def test_a_file_whose_names_are_of_other_scalars_is_refused_or_used(tuned: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "t.db"
    shutil.copy(tuned / "t.db", copy)
    with sqlite3.connect(copy) as connection:
        (text,) = connection.execute("SELECT chooser FROM chooser").fetchone()
        record = json.loads(text)
        record |= {"data": ["nnz"], "anchors": [{"data": [7], "chosen": 1}]}
        connection.execute("UPDATE chooser SET chooser = ?", (json.dumps(record),))
    (chooser,) = choosers_of(api.load_graph(tuned / "sums.dag"), load_tuned(copy))
    assert chooser.anchors == (), "measured by other features: says nothing"
