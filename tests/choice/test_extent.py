"""How far sizes lie outside of the measured ones: C says what Python says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dagc.choice.selector import Extent, c_head

EXTENT = Extent.of([{"n": 10, "m[0]": 0}, {"n": 1000, "m[0]": 0}, {"n": 20}])
SIZES = [(10, 0), (1000, 0), (4000, 0), (4001, 0), (1, 0), (0, 0), (-5, 3), (20, 7), (9, -3), (2**63 - 1, 2**63 - 1)]


def test_c_is_python(tmp_path: Path) -> None:
    rows = "".join(
        f'printf("%.17g %.17g\\n", dagc_beyond({float(n)!r}, 10, 1000), dagc_beyond({float(m)!r}, 0, 0));'
        for n, m in SIZES
    )
    source = tmp_path / "extent.c"
    source.write_text(f"#include <stdio.h>\n{c_head()}int main(void) {{ {rows} return 0; }}\n")
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(tmp_path / "extent"), "-lm"], check=True, capture_output=True)
    said = subprocess.run([tmp_path / "extent"], check=True, capture_output=True, text=True).stdout
    expected = [EXTENT.beyond({"n": float(n), "m[0]": float(m)}) for n, m in SIZES]
    assert [[float(word) for word in line.split()] for line in said.splitlines()] == [[*e.values()] for e in expected]
    assert [e["n"] for e in expected][:5] == [1, 1, 4, pytest.approx(4.001), 10]
    assert all(e["n"] > 1 for e in expected[5:7]), "0 and less lie outside, too"


def test_the_warning_names_the_size_and_what_was_measured() -> None:
    assert EXTENT.text == "n 10 to 1000, m[0] 0"
    assert EXTENT.warning({"n": 4000, "m[0]": 3, "other": 10**9}) == ""
    said = EXTENT.warning({"n": 50_000, "m[0]": 0})
    assert said.startswith("n = 50000 is 50 times outside the measured sizes (n 10 to 1000, m[0] 0)")
    assert Extent.of([]).warning({"n": 10**9}) == ""
