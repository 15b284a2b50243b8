"""Programs with loops from the command line: one period is counted, listed, compiled, searched and kept."""

from __future__ import annotations

import json
import sqlite3
from itertools import permutations
from pathlib import Path

import pytest

from dagc.cli.main import main
from dagc.ir.traversal import parse_traversal
from dagc.space.loops import is_folded_text, unroll
from dagc.stages.program import read
from dagc.store.records import load
from tests.measure.conftest import SAMPLES, can_run

JACOBI = str(SAMPLES / "jacobi/jacobi.dag")
OPS = ("first", "last", "halo", "inner")
SMALL = ["-D", "nx=40", "-D", "rows=5", "-D", "steps=4"]
pytestmark = pytest.mark.usefixtures("unoptimised")


def test_count_says_what_it_counts_of_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", JACOBI, "--transport", "peer", "--quiet"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("88 implementations of jacobi")
    assert out[1] == "  20 rounds of first[t] to inner[t] repeat one order (--unroll: an order for each)"
    assert main(["count", JACOBI, "--transport", "peer", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loops"] == [out[1].strip()]
    assert main(["count", JACOBI, "--transport", "peer", "--quiet", "--unroll", "-D", "steps=3"]) == 0
    unrolled = capsys.readouterr().out
    assert "--unroll" not in unrolled
    assert int(unrolled.split()[0]) > 88**3


def test_count_says_why_iterations_are_not_a_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = Path(JACOBI).read_text().split("dag {")[0]
    file = tmp_path / "grow.dag"
    file.write_text(
        text.replace("jacobi.py", str(Path(JACOBI).parent / "jacobi.py"))
        + """dag {
  for t in 0..4 {
    for k in 0..t + 1 {
      s[t, k] : gpu stencil(u[(t + 1) % 2][1 .. 2], u[t % 2][0 .. 3], 1, nx)
    }
  }
}
"""
    )
    assert main(["count", str(file), "--quiet"]) == 0
    line = text.count("\n") + 2
    note = (
        f"4 iterations of `for t` (line {line}) have each an order of their own: `s[2,0]` has no counterpart in t = 1;"
    )
    assert note in capsys.readouterr().out
    assert main(["count", str(file), "--quiet", "--unroll"]) == 0
    assert "iterations of" not in capsys.readouterr().out


def test_list_and_compile_speak_of_the_same_traversals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    space = [JACOBI, "--transport", "peer", *SMALL]
    assert main(["list", *space, "--plain"]) == 0
    texts = capsys.readouterr().out.splitlines()
    assert len(texts) == 88
    file = tmp_path / "t.txt"
    file.write_text(texts[40])
    written = []
    for wanted in ("40", str(file)):
        out = tmp_path / f"o{len(written)}"
        assert main(["compile", *space, "--no-build", "--target", "host", "--traversal", wanted, "-o", str(out)]) == 0
        assert "traversal  40, proved" in capsys.readouterr().out
        written.append((out / "traversal.txt").read_text())
    assert written[0] == written[1]
    # What was written is every round; it is read again as such, without an ID.
    file.write_text(written[0])
    command = ["compile", *space, "--no-build", "--target", "host", "--traversal", str(file), "-o", str(tmp_path / "p")]
    assert main(command) == 0
    assert "without an ID, proved" in capsys.readouterr().out
    assert main([*command, "--unroll", "--force"]) == 0


def test_a_wrong_traversal_of_a_round_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    for text, said in (
        ("first[t]@s0 last[t]@s1 halo[t]@s0 inner[t]@s0 end", "`halo[0]@s0` may start before `last[0]` has completed"),
        ("first[t]@s0 last[t]@s0 end halo[t]@s0 inner[t]@s0", "`end` is issued before ops of an earlier part"),
        ("first[t]@s0 last[u]@s0", "no op has this name"),
    ):
        file.write_text(text)
        args = ["compile", JACOBI, "--transport", "peer", "--no-build", "--target", "host", "--traversal", str(file)]
        assert main([*args, "-o", str(tmp_path / "o")]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_a_search_keeps_the_period(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, best = tmp_path / "r.db", tmp_path / "best"
    quick = ["--target", "host", "-n", "2", "--seconds", "5e-4", "-o", str(file)]
    space = ["explore", JACOBI, *SMALL, "--transport", "peer"]
    search, few = [*space, "--launch", "fixed", *quick], ["--confirm", "2", "--repeats", "2", "--budget", "8"]
    assert main([*search, *few]) == 0
    said = capsys.readouterr().out
    assert "4 rounds of first[t] to inner[t] repeat one order" in said
    assert "of a space of 88" in said
    results = load(file)
    assert results.folded
    folded = read(JACOBI, {"nx": 40, "rows": 5, "steps": 4, "transport": "peer"}, folds=True).graph()
    texts = {i.traversal for i in results.implementations}
    assert all(is_folded_text(text, folded) for text in texts)
    assert f"measured   {len(texts)} implementations" in said, "8, or fewer if some were measured twice"
    for command in (["rules", str(file)], ["best", str(file), "-o", str(best), "--no-build"]):
        assert main(command) == 0
    shown = capsys.readouterr().out
    chosen = next(line for line in shown.splitlines() if line.startswith("traversal"))
    assert any(chosen.endswith(text) for text in texts)
    expected = next(unroll(folded, parse_traversal(t, folded))[1] for t in texts if chosen.endswith(t))
    written = parse_traversal((best / "traversal.txt").read_text(), folded.unrolled)
    assert written == expected
    assert main(["report", str(file), "-o", str(tmp_path / "r.html")]) == 0
    assert "last[3]" in (tmp_path / "r.html").read_text()  # the timeline has every round
    assert main([*search, *few, "--resume", "--unroll"]) == 2
    assert "drop --unroll, or choose another file with -o" in capsys.readouterr().err
    assert main([*space, "--replay", str(file), "--unroll", "-o", str(tmp_path / "s.db")]) == 2
    assert "drop --unroll, or choose another file with -o" in capsys.readouterr().err
    assert main([*space, "--replay", str(file), "--budget", "8"]) == 0
    assert main([*search, "--resume", "--strategy", "random", "--budget", "24", "--confirm", "0", "--no-trace"]) == 0
    with sqlite3.connect(file) as connection:  # times that a rule explains
        found = connection.execute("SELECT id, traversal FROM candidate").fetchall()
        orders = [[text.index(a) < text.index(b) for _, text in found] for a, b in permutations(OPS, 2)]
        slow = min(orders, key=lambda order: abs(sum(order) - len(found) / 2))
        for (number, _), late in zip(found, slow, strict=True):
            seconds = 1e-4 * (1 + late) + 1e-8 * number
            connection.execute(
                "UPDATE value SET value = ? WHERE sample IN (SELECT id FROM sample WHERE candidate = ?)",
                (seconds, number),
            )
        connection.execute("DELETE FROM drift")
        connection.execute("UPDATE run SET noise = 0.01")
    connection.close()
    capsys.readouterr()
    assert main(["explain", str(file), "--pairs", "1"]) == 0, "explain runs all rounds, as explore does"
    assert "timed in 1 interleaved pair" in capsys.readouterr().out


def test_waits_between_rounds_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as the unrolled traversal has beside those of the period, in a comment that is not read."""
    words = [*SMALL, "--transport", "nccl", "--streams", "2"]
    assert main(["list", JACOBI, *words, "--plain", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    defines = {"nx": 40, "rows": 5, "steps": 4, "transport": "nccl", "streams": 2}
    graph = read(JACOBI, defines, folds=True).graph()
    assert len(lines) == 88
    for line in lines:
        text, _, comment = line.partition("  # ")
        traversal = parse_traversal(line, graph)
        assert traversal == parse_traversal(text, graph)
        _, flat = unroll(graph, traversal)
        many, few = (sum(e.waits and e.stream is not None for e in t.entries) for t in (flat, traversal))
        waits = many - 4 * few
        between = [part for part in comment.split("; ") if not part.startswith("end waits")]
        assert all(part.endswith(" of the round before") for part in between)
        assert waits == 3 * len(between)  # not in the first round
    last = "inner[t]@s0 first[t]@s1 last[t]@s1 halo[t]@s1 end  # inner[t]@s0 waits for last[t]@s1 of the round before; "
    assert any(line.startswith(last) for line in lines)
