"""Kernels of files under forms: which are read as texts, and that these are the texts that a program would have."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.cuda.lexer import tokens_of
from dagc.forms import kernel_of
from dagc.forms.functions import read_as_texts
from dagc.ir.program import CodeText
from dagc.stages.program import read

PROGRAM = """program functions
setup "none.py" data()
scalar n : i32
array a : f64[n] in
array y : f64[n] inout
kernel twice(target: inout f64[*], source: in f64[*], count: i32) {{
  tune bx in {{32, 64}}
  gpu {{
    launch grid(ceil(count / bx)) block(bx)
    cuda {kernel}
  }}
}}
dag {{ one : gpu twice(y, a, n) }}
"""
TYPE = "#define REAL double\n"
SIGNATURE = "__global__ void twice(REAL* __restrict__ out, const REAL* __restrict__ in, const int n)"
BODY = """
  // twice what stands there
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const REAL* place = in + i;
  if (i < n) out[i] = 2 * place[0];
"""


def code_of(folder: Path, file: str, kernel: str = 'twice from "twice.cu"', forms: str = "2") -> CodeText:
    (folder / "twice.cu").write_text(file)
    path = folder / "functions.dag"
    path.write_text(PROGRAM.format(kernel=kernel))
    program = read(path, {"one.form.wide": forms} if forms else {}).program()
    code = kernel_of(program, program.kernel_ops[0])[1].code
    assert code is not None
    return code


def test_a_kernel_of_a_file_has_forms_as_its_text_has(tmp_path: Path) -> None:
    own = code_of(tmp_path, TYPE + SIGNATURE + " {" + BODY + "}\n")
    pasted = (
        BODY.replace("REAL", "double").replace("out[", "target[").replace("in +", "source +").replace("< n", "< count")
    )
    text = own.text or ""
    assert tokens_of(text) == tokens_of(code_of(tmp_path, "", f'"""{pasted}"""').text or "")
    assert own.restrict
    assert "dagc::window<2>" in text
    assert own.span.file == str(tmp_path / "twice.cu")
    launched = code_of(tmp_path, TYPE + SIGNATURE + " {" + BODY + "}\n", forms="")
    assert (launched.text, launched.file) == (None, "twice.cu")  # without forms, the function itself


@pytest.mark.parametrize(
    "file",
    [
        "__constant__ double c;\n" + SIGNATURE + " {" + BODY.replace("2 *", "c *") + "}",
        "__device__ double c(double x) { return x; }\n" + SIGNATURE + " {" + BODY.replace("2 *", "c(2) *") + "}",
        "template <int N>\n" + SIGNATURE + " {" + BODY + "}",
        SIGNATURE.replace("void", "void __launch_bounds__(64)") + " {" + BODY + "}",
        SIGNATURE.replace("const int", "const long") + " {" + BODY + "}",
        SIGNATURE.replace("const REAL", "REAL") + " {" + BODY + "}",  # `place` would lose `const`
        SIGNATURE + " {" + BODY.replace("if (", "in += 1;\n  if (") + "}",
        SIGNATURE + " {" + BODY.replace("if (", "int source = n;\n  if (") + "}",
        SIGNATURE + " {" + BODY.replace("if (", "int bx = n;\n  if (") + "}",
        SIGNATURE + " {\n#ifdef FAST" + BODY + "#endif\n}",
        SIGNATURE + " {" + BODY + "}\n" + SIGNATURE.replace("int n", "int n, int m") + " {}",
    ],
)
def test_one_that_needs_more_stays_a_function_of_its_file(file: str, tmp_path: Path) -> None:
    code_of(tmp_path, TYPE + file, forms="")
    (kernel,) = read_as_texts(read(tmp_path / "functions.dag").program()).kernels
    code = kernel.impls[0].code
    assert code is not None
    assert code.text is None
