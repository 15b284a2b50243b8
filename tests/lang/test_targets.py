"""Implementations that need the CUDA toolkit do not exist on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError, UsageError
from dagc.base.source import Source
from dagc.emit import linked
from dagc.ir.plan import Plan, Target
from dagc.lang.lower import lower, parse_with_includes, without_missing
from dagc.passes import build_graph
from dagc.space import Space

TEXT = """
program libraries
array x : f32[4] in
array y : f32[4] out
kernel copy4(y: out f32[4], x: in f32[4]) {
  gpu plain {
    launch grid(1) block(4)
    cuda \"\"\" y[threadIdx.x] = x[threadIdx.x]; \"\"\"
  }
  gpu cublas { link "cublas"  cpp \"\"\" copy_by_cublas(y, x, stream); \"\"\" }
  gpu cub { link "cudart", "m"  cpp \"\"\" copy_by_cub(y, x, stream); \"\"\" }
  cpu { link "openblas"  cpp \"\"\" cblas_scopy(4, x, 1, y, 1); \"\"\" }
}
dag { one : gpu copy4(y, x) }
"""


def test_they_are_no_choices_there() -> None:
    parsed = parse_with_includes(Source("test.dag", TEXT))
    here, notes = without_missing(parsed, cuda=False)
    assert [d.values for d in lower(parsed).decisions if d.name == "one.variant"] == [("plain", "cublas", "cub")]
    assert not any(d.name == "one.variant" for d in lower(here).decisions)
    assert notes == (
        "copy4.cublas: links cublas, which the host target does not have",
        "copy4.cub: links cudart, which the host target does not have",
    )
    assert [i.name for k in lower(here).kernels for i in k.impls] == ["plain", "default"]


def test_the_runtime_is_linked_already() -> None:
    graph = build_graph(lower(parse_with_includes(Source("test.dag", TEXT)), {"one.variant": "cub"}))
    assert linked(Plan(graph, next(iter(Space(graph))), Target.CUDA)).libraries == ("m",)


def test_compile_names_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "p.dag").write_text(TEXT)
    done = api.compile(tmp_path / "p.dag", tmp_path / "out", target="host", build=False)
    assert "left out   copy4.cublas: links cublas" in done.render()
    assert not api.compile(tmp_path / "p.dag", tmp_path / "cuda", target="cuda", build=False).left_out[:-1]
    with pytest.raises(UsageError, match="one.variant"):
        api.compile(tmp_path / "p.dag", tmp_path / "out", defines={"one.variant": "cublas"}, target="host", build=False)


def test_a_kernel_with_nothing_else_is_an_error() -> None:
    text = TEXT.replace("gpu plain {", 'gpu plain { link "cusparse"')
    there, notes = without_missing(parse_with_includes(Source("test.dag", text)), cuda=False)
    assert [i.name for k in lower(there).kernels for i in k.impls] == [
        "cublas",
        "default",
    ]  # the host target has a part
    assert [note.partition(":")[0] for note in notes] == ["copy4.plain", "copy4.cub"]
    text = text.replace('link "cublas"', 'link "cublas", "cublasLt"')
    with pytest.raises(ProgramError, match="without CUDA, kernel `copy4` has no gpu implementation"):
        without_missing(parse_with_includes(Source("test.dag", text)), cuda=False)
    unused = (
        text.replace("gpu copy4", "cpu copy4")
        .replace("x : f32[4]", "x : f32[4] on host")
        .replace("y : f32[4]", "y : f32[4] on host")
    )
    assert lower(without_missing(parse_with_includes(Source("test.dag", unused)), cuda=False)[0]).kernels


def test_a_library_that_is_not_installed(tmp_path: Path) -> None:
    """Its implementations do not exist; the program says so, and runs with the others."""
    text = TEXT.replace('link "cublas"', 'link "dagc_nowhere"').replace('link "cudart", "m"', 'link "m"')
    text = text.replace('cpu { link "openblas"  cpp """ cblas_scopy(4, x, 1, y, 1); """ }', "")
    (tmp_path / "p.dag").write_text(text)
    for target in ("host", "cuda"):
        done = api.compile(tmp_path / "p.dag", tmp_path / target, target=target, build=False)
        assert "copy4.cublas: links dagc_nowhere, which is not installed" in done.left_out
        assert [d.values for d in done.plan.program.decisions if d.name == "one.variant"] == [("plain", "cub")]
    (tmp_path / "q.dag").write_text(
        text.replace("gpu plain {", 'gpu plain { link "dagc_nowhere"').replace('"m"', '"dagc_nowhere"')
    )
    with pytest.raises(ProgramError, match="`dagc_nowhere` is not installed, and kernel `copy4` has no other gpu"):
        api.compile(tmp_path / "q.dag", tmp_path / "q", target="host", build=False)


def test_an_op_on_any_device_runs_on_the_other(tmp_path: Path) -> None:
    text = TEXT.replace("f32[4] in", "f32[4] on any in", 1).replace("f32[4] out", "f32[4] on any out", 1)
    parsed = parse_with_includes(Source("test.dag", text.replace("one : gpu", "one : any")))
    assert (
        lower(without_missing(parsed, True, lambda name: name != "openblas")[0]).decision("one.gpu.variant") == "plain"
    )
    with pytest.raises(ProgramError, match="no other cpu implementation"):
        only = TEXT.replace("one : gpu", "one : cpu")
        without_missing(parse_with_includes(Source("test.dag", only)), True, lambda name: name != "openblas")
