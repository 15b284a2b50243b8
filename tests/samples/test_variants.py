"""The samples whose variants are chosen by features of the input: lists, generators, references, and every variant."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from dagc import api
from dagc.inputs import is_call, parse_call
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample
from tests.tiers import representatives

NAMES = ("histogram", "sort", "bfs")
LISTS = {
    "histogram": ("train", "test"),
    "sort": ("train", "test", "unseen", "families", "families2", "families3", "families4"),
    "bfs": ("train", "test", "unseen", "families", "families2", "families3", "families4", "families5"),
}
ONLY_TESTED = {
    "histogram": {"walk", "mixture"},
    "sort": {"appended", "waves", "sawtooth", "shuffled", "lognormal", "zipf", "inserted",
             "rotated", "interleaved", "turned", "walk", "rounded",
             "delayed", "descents", "transposed", "partly", "clusters",
             "heaped", "bitreversed", "leveled", "tides", "sparse", "golden",
             "sensors", "patched", "mirrored", "plateaus", "gray", "drifting"},
    "bfs": {"smallworld", "loops", "hypercube", "barbell", "bipartite", "attached",
            "torus", "communities", "layers", "wheel", "comb",
            "lollipop", "necklace", "recursive", "windmill", "circulant",
            "debruijn", "hanoi", "window", "butterfly", "visits", "shortcuts",
            "delaunay", "nearest", "citations", "sierpinski", "stars", "box",
            "triangles", "pairing", "celebrities", "onion", "broom", "petals"},
}  # fmt: skip
SIZES = {"n": 60, "rows": 6, "columns": 6, "depth": 3, "scale": 5, "number": 3, "size": 9, "left": 20, "right": 9,
         "length": 3, "width": 4, "disks": 3, "letters": 3, "dimensions": 5, "users": 30, "items": 12,
         "rings": 4}  # fmt: skip


def inputs_of(name: str, which: str) -> list[str]:
    lines = (SAMPLES / name / f"{which}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_lists_are_disjoint_and_each_input_can_be_made(name: str) -> None:
    module = sample(f"{name}/{name}.py")
    lists = [inputs_of(name, which) for which in LISTS[name]]
    every = [text for one in lists for text in one]
    assert len(set(every)) == len(every), "no input is in two lists"
    assert all(len(one) >= 15 for one in lists)
    families = []
    for inputs in lists:
        families.append({parse_call(text)[0] for text in inputs if is_call(text)})
        for text in inputs:
            if not is_call(text):
                assert (SAMPLES / name / text).is_file()
                continue
            family, arguments = parse_call(text)
            if name == "sort":
                arguments.pop("number", None)  # of runs
            arguments |= {key: min(SIZES[key], arguments[key]) for key in SIZES.keys() & arguments}
            made = module.FAMILIES[family](**arguments, **({"bins": 256} if name == "histogram" else {}))
            assert len(made) > 0
    for at, which in enumerate(LISTS[name]):
        assert not which.startswith("families") or not families[at] & set.union(*families[:at])
    assert set.union(*families[1:]) - families[0] == ONLY_TESTED[name]


def test_values_of_a_histogram() -> None:
    histogram = sample("histogram/histogram.py")
    for text in ("walk(n = 5000)", "zipf(n = 5000, exponent = 1.5)", "tiled(n = 90_000, image = 'images/cell.npy')"):
        data = histogram.values(0, 1, 0, text, 256, 1)
        assert (data["n"], data["values"].dtype) == (data["values"].size, np.uint8)
        again = histogram.values(3, 4, 9, text, 256, 1)["values"]
        assert again.tobytes() == data["values"].tobytes(), "depends on the text alone"
        assert histogram.bincount(data, bins=256)["bin_count"].tolist() == [
            int((data["values"] == bin).sum()) for bin in range(256)
        ]
    assert np.abs(np.diff(histogram.walk(5000, 256).astype(int))).max() <= 2
    whole = histogram.window("images/camera.npy", 256)
    assert whole.size == np.load(SAMPLES / "histogram/images/camera.npy").size
    with pytest.raises(ValueError, match="has the value 255, and there are 16 bins"):
        histogram.values(0, 1, 0, "images/camera.npy", 16, 1)
    with pytest.raises(ValueError, match="-D element=u16"):
        histogram.values(0, 1, 0, "uniform(n = 10)", 1000, 1)


@pytest.mark.parametrize("bits", [32, 64])
def test_keys_in_order(bits: int) -> None:
    sort = sample("sort/sort.py")
    data = sort.keys(0, 1, 0, f"signed_zeros(n = 3000, bits = {bits})")
    assert (data["n"], data["bits"], data[f"n{bits}"], data[f"n{96 - bits}"]) == (3000, bits, 3000, 0)
    keys, found = data[f"in{bits}"], sort.total_order(data)[f"out{bits}"]
    number = keys.view(f"u{bits // 8}").astype(object)  # IEEE 754's totalOrder, with integers of Python
    order = sorted(range(3000), key=lambda i: -number[i] if number[i] >> (bits - 1) else number[i] + 1)
    np.testing.assert_array_equal(found, keys[order])
    assert np.isnan(found[0])
    assert np.isnan(found[-1])
    assert np.isin(sort.shuffled(95, bits, length=10), sort.ascending(95, bits)).all()
    assert np.argmax(sort.organ(99, bits)) == 49
    jittered = sort.jittered(5000, bits, distance=50)
    assert 0 < np.abs(np.argsort(jittered, kind="stable") - np.arange(5000)).max() <= 50
    assert np.count_nonzero(np.diff(sort.runs(999, bits, number=7)) < 0) == 6
    with pytest.raises(ValueError, match="bits is 32 or 64"):
        sort.keys(0, 1, 0, "uniform(n = 10, bits = 16)")


@pytest.mark.parametrize(
    "text",
    [
        "rmat(scale = 7, degree = 6)", "rmat(scale = 7, degree = 6, directed = True)", "loops(n = 5, times = 3)",
        "cliques(number = 3, size = 4, joined = False)", "path(n = 9)", "empty(n = 3)", "star(n = 9, hubs = 2)",
        "graphs/power_grid.mtx", "roads(rows = 5, columns = 6)", "tree(n = 1)",
        "hypercube(dimensions = 4)", "barbell(size = 4, length = 3)", "caterpillar(n = 4, legs = 3)",
        "bipartite(left = 6, right = 4, degree = 2)", "preferential(n = 40, degree = 4)",
        "attached(scale = 5, degree = 4, length = 6)", "lollipop(size = 4, length = 3)", "recursive(n = 20)",
        "necklace(number = 3, size = 4, length = 2)", "windmill(number = 3, size = 4)",
        "circulant(n = 11, degree = 4, stride = 3)",
        "delaunay(n = 30)", "nearest(n = 30, neighbours = 3)", "citations(n = 30, degree = 2, recent = 0.1)",
        "sierpinski(depth = 2)", "stars(number = 5, size = 3, degree = 2)", "box(width = 3, length = 4)",
        "triangles(rows = 4, columns = 5)", "pairing(n = 30, mean = 2.0)", "onion(rings = 3, first = 4)",
        "celebrities(n = 30, degree = 2, number = 2, share = 0.3)", "broom(n = 5, length = 4)",
        "petals(number = 3, length = 5)",
    ],
)  # fmt: skip
def test_levels_are_shortest_paths(text: str) -> None:
    bfs = sample("bfs/bfs.py")
    data = bfs.graph(0, 1, 3, text, -1, 2)
    assert len(data["row_ptr"]) == data["n"] + 1
    assert data["row_ptr"][-1] == data["m"] == data["col"].size
    matrix = csr_array((np.ones(data["m"]), data["col"], data["row_ptr"]), (data["n"], data["n"]))
    assert bool(data["symmetric"]) == ("directed" not in text)
    if data["symmetric"]:
        assert (matrix != matrix.T).nnz == 0
    paths = shortest_path(matrix, unweighted=True, indices=data["sources"])
    levels = bfs.scipy_levels(data)["levels"]
    np.testing.assert_array_equal(levels, np.where(np.isinf(paths), -1, paths))


NO_ARRAY = "is not an array of numbers in NumPy's format: "


def archive() -> bytes:
    """A file of np.savez."""
    out = io.BytesIO()
    np.savez(out, a=np.zeros(3))
    return out.getvalue()


def header(shape: str) -> bytes:
    """A file of np.save with this shape, and no numbers."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "of_histogram", "of_sort"),
    [(np.array([0, 300], np.uint16), "has the value 300, and there are 256 bins", "its numbers are uint16"),
     (np.array([-1, 5]), "has the value -1; values are whole numbers from 0", "its numbers are int64"),
     (np.array([1, np.nan], np.float16), "its numbers are float16", "its numbers are float16"),
     (np.array([{}]), NO_ARRAY + "Object arrays", NO_ARRAY + "Object arrays"),
     (b"text", NO_ARRAY, NO_ARRAY),
     (b"\x93NUMPY\x01\x00v\x00cut", NO_ARRAY + "EOF", NO_ARRAY + "EOF"),
     (archive(), NO_ARRAY + "it is an archive", NO_ARRAY + "it is an archive"),
     (archive()[:60], NO_ARRAY + "File is not a zip file", NO_ARRAY + "File is not a zip file"),
     (header("(3000000000000, 3)"), "not enough memory for the shape", "not enough memory for the shape"),
     (header("(3000000000, 3000000000)"), NO_ARRAY, NO_ARRAY),
     (header(f"({10**30},)"), NO_ARRAY, NO_ARRAY),
     (header("((("), NO_ARRAY, NO_ARRAY),
     (None, "not a regular file", "not a regular file")],
)  # fmt: skip
def test_files_that_are_refused(
    tmp_path: Path, content: np.ndarray | bytes | None, of_histogram: str, of_sort: str
) -> None:
    path = tmp_path / "a.npy"
    if content is None:
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=rf"a\.npy.*{of_histogram}"):
        sample("histogram/histogram.py").values(0, 1, 0, str(path), 256, 1)
    with pytest.raises(ValueError, match=rf"a\.npy.*{of_sort}"):
        sample("sort/sort.py").keys(0, 1, 0, str(path))


@pytest.mark.parametrize("name", ["histogram", "sort"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    module = sample(f"{name}/{name}.py")
    with pytest.raises(ValueError, match=r"none\.npy cannot be read: No such file"):
        module._read(str(tmp_path / "none.npy"))


def test_images_that_are_refused(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    histogram = sample("histogram/histogram.py")
    whole = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 30), np.uint8)).save(whole)
    assert histogram.values(0, 1, 0, str(whole), 256, 1)["n"] == 1200
    for content, message in (
        (b"text", "is not an image"),
        (whole.read_bytes()[:-300], "cannot be read|is not an image"),
    ):
        (tmp_path / "b.png").write_bytes(content)
        with pytest.raises(ValueError, match=rf"b\.png ({message})"):
            histogram.values(0, 1, 0, str(tmp_path / "b.png"), 256, 1)
    os.mkfifo(tmp_path / "c.png")
    with pytest.raises(ValueError, match=r"c\.png is not a regular file"):
        histogram.values(0, 1, 0, str(tmp_path / "c.png"), 256, 1)


MATRIX = "%%MatrixMarket matrix coordinate "


@pytest.mark.parametrize(
    ("ending", "content", "message"),
    [
        ("", MATRIX + "pattern general\n2 3 1\n1 3\n", "has 2 and 3"),
        ("", MATRIX + "pattern general\n3 3 2\n1 3\n", ":3: the file ends after 1 of 2 entries"),
        ("", MATRIX + "pattern general\n3 3 2\n1 3\n \n\n\n", ":6: the file ends after 1 of 2 entries"),
        ("", MATRIX + "pattern general\n3000000000 3000000000 1\n1 3\n", "too many for 3000000000 rows"),
        ("", MATRIX + "pattern general\n2000000000 2000000000 3\n1 3\n1 1\n2 2\n", "with 3 entries: its rows"),
        ("", MATRIX + "complex hermitian\n3 3 1\n2 1 3 4\n", "is complex hermitian; a graph is"),
        ("", MATRIX + "complex general\n3 3 1\n2 1 3 4\n", "is complex general; a graph is"),
        ("", MATRIX + "real skew-symmetric\n3 3 1\n2 1 3\n", "is real skew-symmetric; a graph is"),
        ("", MATRIX + "pattern symmetric\n3 3 2\n2 1\n1 2\n", "both sides of the diagonal"),
        ("", MATRIX + "integer general\n3 3 1\n2 1 99999999999999999999\n", ":3: the entry is outside the range"),
        ("", "%%MatrixMarket matrix array real general\n1 1\n1\n", ":1: not the first line of a sparse matrix"),
        (".gz", b"no archive", "cannot be read"),
        (".gz", gzip.compress((MATRIX + "pattern general\n3 3 1\n1 3\n").encode(), mtime=0)[:-9], "cannot be read"),
        ("", None, "is not a regular file"),
    ],
)
def test_graphs_that_are_refused(tmp_path: Path, ending: str, content: str | bytes | None, message: str) -> None:
    path = tmp_path / f"a.mtx{ending}"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"a\.mtx{ending}(?=[: ]).*({message})"):
        sample("bfs/bfs.py").graph(0, 1, 0, str(path), -1, 1)


@pytest.mark.parametrize("field", ["pattern", "integer", "real"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_graphs_of_files(tmp_path: Path, field: str, symmetry: str) -> None:
    """Entries of one place are edges of their own."""
    value = "" if field == "pattern" else " 0"
    lines = "".join(f"{place}{value}\n" for place in ("2 1", "3 3", "3 1", "2 1"))
    (tmp_path / "a.mtx").write_text(f"{MATRIX}{field} {symmetry}\n% comment\n3 3 4\n{lines}")
    data = sample("bfs/bfs.py").graph(0, 1, 0, str(tmp_path / "a.mtx"), -1, 1)
    rows = np.split(data["col"], data["row_ptr"][1:-1])
    expected = [[], [0, 0], [0, 2]] if symmetry == "general" else [[1, 1, 2], [0, 0], [0, 2]]
    assert [sorted(row.tolist()) for row in rows] == expected
    assert data["symmetric"] == (symmetry == "symmetric")


def test_sources_of_graphs() -> None:
    bfs = sample("bfs/bfs.py")
    with pytest.raises(ValueError, match="source 4: "):
        bfs.graph(0, 1, 0, "path(n = 4)", 4, 1)
    assert bfs.graph(0, 1, 0, "empty(n = 0)", -1, 2)["sources"].tolist() == [0, 0]


def test_too_little_memory_names_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: int) -> None:
        raise MemoryError

    for name, arguments in (
        ("bfs", ("path(n = 1)", 0, 1)),
        ("sort", ("path(n = 1)",)),
        ("histogram", ("path(n = 1)", 9, 1)),
    ):
        module = sample(f"{name}/{name}.py")
        monkeypatch.setitem(module.FAMILIES, "path", fail)
        made = getattr(module, {"bfs": "graph", "sort": "keys", "histogram": "values"}[name])
        with pytest.raises(ValueError, match=r"path\(n = 1\): not enough memory"):
            made(0, 1, 0, *arguments)


# Every variant against the reference on the host target. Tiles end within the input, and a level within a word.
RUNS = [
    ("histogram", {}, ["walk(n = 70_001)", "uniform(n = 0)"]),
    ("histogram", {"bins": "1500", "element": "u16"}, ["zipf(n = 20_001)"]),
    ("sort", {}, ["signed_zeros(n = 20_011, bits = 64)", "runs(n = 30_001, number = 5)"]),
    ("bfs", {"runs": "2"}, ["powerlaw(n = 2001, degree = 9)", "empty(n = 33)"]),
]


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "defines", "inputs"), representatives(RUNS, RUNS[0]), ids=["histogram", "bins", "sort", "bfs"]
)
def test_every_variant_is_right(
    name: str, defines: dict[str, str], inputs: list[str], tmp_path: Path, unoptimised: None
) -> None:
    expected = {"histogram": 10, "sort": 3, "bfs": 8}[name]  # without those of CUB
    for number, text in enumerate(inputs):
        file = tmp_path / f"{number}.db"
        options = TuneOptions(target="host", cell=0.001, inputs=(text,), defines=defines)
        done = tune(SAMPLES / name / f"{name}.dag", file, options)
        assert not done.failures
        with sqlite3.connect(file) as connection:
            checked = connection.execute("SELECT failure FROM checked").fetchall()
            measured = connection.execute("SELECT failure FROM candidate").fetchall()
        assert measured == [("",)] * expected, text
        assert all(failure == "" for (failure,) in checked)


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
@pytest.mark.parametrize("gain", representatives(["3", "1000"], "1000"))
def test_levels_that_are_searched_upwards_are_right(gain: str, tmp_path: Path, unoptimised: None) -> None:
    """Small levels never are: without that bound, and with a high gain nearly all of them."""
    shutil.copytree(SAMPLES / "bfs", tmp_path / "bfs")
    program = tmp_path / "bfs" / "bfs.dag"
    text = program.read_text(encoding="utf-8")
    assert text.count("kLeast = 65536") == text.count("kGain = 3") == 1
    program.write_text(text.replace("kLeast = 65536", "kLeast = 0").replace("kGain = 3", f"kGain = {gain}"))
    for variant in ("direction_fused", "direction_iterative"):
        defines = {"search.variant": variant, "input": "powerlaw(n = 2001, degree = 9)", "runs": "2"}
        api.compile(program, tmp_path / variant, target="host", ranks=1, defines=defines, run=True, seconds=1e-3)


def in_tiles(keys: np.ndarray) -> tuple[float, float]:
    """The share of tiles of 2048 keys in which some key is less than the one before it, also that after the last; and
    of pairs of tiles with a key above one of the other, added up over the levels of a merge sort."""
    less = np.flatnonzero(np.diff(keys) < 0)
    near = np.unique(less // 2048).size / max(-(-(keys.size - 1) // 2048), 1)
    tiles = keys[: keys.size // 2048 * 2048].reshape(-1, 2048)[:, ::16]
    far, apart = 0.0, 1
    while apart < len(tiles):
        first = np.arange(min(64, len(tiles) - apart)) * (len(tiles) - apart) // min(64, len(tiles) - apart)
        far += np.mean(tiles[first].max(axis=1) > tiles[first + apart].min(axis=1))
        apart *= 2
    return near, far


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
def test_features_say_how_far_keys_are_in_order(tmp_path: Path, unoptimised: None) -> None:
    inputs = (
        "partly(n = 30_001, bits = 64, share = 0.8)", "runs(n = 20_001, number = 3)",
        "descents(n = 5000, number = 1)", "ascending(n = 3000)", "uniform(n = 1)",
    )  # fmt: skip
    found = features_of("sort", inputs, tmp_path)
    for text in inputs:
        data = sample("sort/sort.py").keys(0, 1, 0, text)
        keys = data[f"in{data['bits']}"]
        less = np.count_nonzero(np.diff(keys) < 0)
        unsorted = 0 < less < keys.size - 1
        near, far = in_tiles(keys)
        value = found[text]
        assert value["unsorted"] == unsorted, text
        assert value["tiled"] == pytest.approx(unsorted * near * keys.nbytes), text
        assert value["merged"] == pytest.approx(unsorted * far * keys.nbytes), text


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
def test_feature_of_a_graph_is_its_number_of_levels(tmp_path: Path, unoptimised: None) -> None:
    bfs = sample("bfs/bfs.py")
    inputs = ("grid(rows = 9, columns = 20)", "lollipop(size = 30, length = 40)", "hanoi(disks = 5)")
    found = features_of("bfs", inputs, tmp_path)
    for text in inputs:
        levels = bfs.scipy_levels(bfs.graph(0, 1, 0, text, -1, 1))["levels"]
        assert found[text]["depth"] == levels.max() + 1, text


def features_of(name: str, inputs: tuple[str, ...], at: Path) -> dict[str, dict[str, float]]:
    """What the selector of a sample learned from, by input."""
    tune(SAMPLES / name / f"{name}.dag", at / "tuned.db", TuneOptions(target="host", cell=0.001, inputs=inputs))
    return {i.case.text: dict(*i.features.values()) for i in load_tuned(at / "tuned.db").facts.inputs}
