"""`dagc lsp`, by a client that starts it as editors do."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dagc import api
from dagc.base.source import LARGEST
from tests.editor.client import Client, Text

pytest.importorskip("pygls", reason="no pygls: pip install pygls")

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV = SAMPLES / "spmv/spmv.dag"
HEAT = SAMPLES / "heat/heat.dag"
GRID = SAMPLES / "grid2d/grid2d.dag"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    made = Client()
    yield made
    assert made.end() == (0, b"")


@pytest.fixture
def spmv(client: Client) -> Iterator[Text]:
    text = client.open(SPMV, SPMV.read_text())
    assert text.diagnostics() == []
    yield text
    text.close()
    assert text.diagnostics() == []


def _messages(found: list[Any]) -> list[str]:
    return [d["message"] for d in found]


# ---- diagnostics ----------------------------------------------------------------------------------


def test_diagnostics_are_those_of_check(client: Client, tmp_path: Path) -> None:
    """All at once, with help, code, severity, related places; before the text is on disk, and after changes."""
    path = tmp_path / "a.dag"
    good = SPMV.read_text()
    bad = good.replace("n_send)\n  x :", "n_sent)\n  x :").replace("edges explicit", "edges explicit  yl -> pak")
    text = client.open(path, bad)
    found = text.diagnostics()
    path.write_text(bad)
    expected = api.check(path).diagnostics
    assert [d["code"] for d in found] == [d.code for d in expected]
    assert [d["message"] for d in found] == [f"{d.message}\nhelp: {d.help}" for d in expected]
    assert [text.at(d["range"]) for d in found] == ["n_sent", "pak"]
    assert {d["severity"] for d in found} == {1}
    text.change(good.replace("yl : gpu", "yl : gpuu"))
    (one,) = text.diagnostics()
    assert one["code"] == "syntax"
    text.change(good.replace("array y_l, y_r : f32[n]", "array y_l, y_r, z : f32[n]"))
    (one,) = text.diagnostics()
    assert (one["code"], one["severity"], one["tags"]) == ("unused-array", 2, [1])
    text.change(good)
    assert text.diagnostics() == []
    assert one["source"] == "dagc"


def test_a_related_place_is_given(client: Client, tmp_path: Path) -> None:
    text = client.open(tmp_path / "twice.dag", "program p\nlet a = 1\nlet a = 2\ndag {}\n")
    first = next(d for d in text.diagnostics() if d["code"] == "duplicate-name")
    (related,) = first["relatedInformation"]
    assert related["location"]["range"]["start"] == {"line": 1, "character": 4}
    assert related["location"]["uri"] == text.uri


def test_columns_are_utf16(client: Client, tmp_path: Path) -> None:
    """A character beyond the basic plane counts twice; \\r\\n ends one line, form feed and U+2028 none."""
    odd = "/* \U0001f600\U0001f600 \u2028 \x0c e\u0301 */"
    good = f"program p\r\n{odd} param rows : i64 = 4\r\nlet twice = {odd} 2 * rows\r\n"
    text = client.open("untitled:Untitled-1", good + f"{odd} array a : f32[rowz] in\r\ndag {{}}\r\n")
    found = next(d for d in text.diagnostics() if d["code"] == "unknown-name")
    assert text.at(found["range"]) == "rowz"
    (place,) = text.ask("definition", "2 * rows", 5)
    assert place["uri"] == text.uri
    assert text.at(place["range"]) == "rows"
    assert "`rows = 4`" not in text.hover("rows", 1)  # the text has never given a program
    assert "param rows : i64 = 4" in text.hover("rows", 1)


def test_both_sides_may_agree_on_other_columns(tmp_path: Path) -> None:
    """Where an editor dies, standard input ends, and so does the server."""
    client = Client(offered=["utf-32"])
    assert client.server["capabilities"]["positionEncoding"] == "utf-32"
    text = client.open(tmp_path / "a.dag", "program p\n/* \U0001f600 */ let a = zz\n")
    found = next(d for d in text.diagnostics() if d["code"] == "unknown-name")
    assert found["range"]["start"] == {"line": 1, "character": 16}
    assert b"Traceback" not in client.left()[1]


def test_an_included_file(client: Client, tmp_path: Path) -> None:
    """Its diagnostics come with those of the text that includes it; alone it lacks nothing but what is wrong in it."""
    (tmp_path / "part.dag").write_text("param n : i64 = 4\nlet m = nn\n")
    kernel = 'kernel f(a: inout f32[4]) { gpu { launch grid(1) block(4) cuda """a[threadIdx.x] += 1;""" } }'
    text = f'program p\ninclude "part.dag"\narray a : f32[m] inout\n{kernel}\ndag {{ x : gpu f(a) }}\n'
    main = client.open(tmp_path / "main.dag", text)
    main.diagnostics()
    part = (tmp_path / "part.dag").as_uri()
    (found,) = client.diagnostics(part).get(timeout=300)
    assert found["code"] == "unknown-name"
    assert main.ask("definition", "part.dag", 2)[0]["uri"] == part
    assert main.ask("definition", "[m] inout", 1)[0]["uri"] == part
    (tmp_path / "part.dag").write_text("param n : i64 = 4\nlet m = n\n")
    client.tell("textDocument/didSave", {"textDocument": {"uri": part}})
    main.diagnostics()
    assert client.diagnostics(part).get(timeout=300) == []
    opened = client.open(tmp_path / "part.dag", "param n : i64 = 4\nlet m = n\n")
    assert opened.diagnostics() == []
    assert "`n = 4`" in opened.hover("n :")  # of the program that includes it
    opened.change("param n : i64 = 4\nlet m = mm\n")  # and not saved
    found: list[str] = []
    while not found:
        found = [d["code"] for d in opened.diagnostics()]
    assert found == ["unknown-name"]
    opened.change("param n i64 = 4\n")
    while found != ["syntax"]:  # which both texts find: said once
        found = [d["code"] for d in opened.diagnostics()]
    main.close()
    opened.change("param n : i64 = 4\nlet m = mm\n")  # alone, it may be for any program
    while found:
        found = [d["code"] for d in opened.diagnostics()]


def test_any_text_is_survived(client: Client, tmp_path: Path) -> None:
    """Too large, with a NUL, deeply nested, half of a character: a diagnostic, and the next text is served."""
    text = client.open(tmp_path / "large.dag", "program p\n" + "// filler\n" * (LARGEST // 10))
    assert [d["code"] for d in text.diagnostics()] == ["too-large"]
    for odd in (
        "program p\n\0",
        "let a = " + "(" * 5000,
        "let a = \ud800 1",
        "",
        '"""',
        "/*",
        'program p\nsetup "',
        "\ufeff",
    ):
        text.change(odd)
        assert all(d["severity"] for d in text.diagnostics())
        for what in ("hover", "completion", "definition"):
            text.ask(what, "", 0)
    text.change(SPMV.read_text())
    assert text.diagnostics() == []


def test_nothing_of_a_program_is_run(client: Client, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(rank, size, seed): ...\n")
    text = client.open(tmp_path / "a.dag", 'program p\nsetup "s.py" f()\ndag {}\n')
    text.diagnostics()
    (place,) = text.ask("definition", "f()", 0)
    assert place["uri"] == (tmp_path / "s.py").as_uri()
    assert place["range"]["start"]["line"] == 1
    assert not (tmp_path / "ran").exists()


def test_of_many_changes_the_last_counts(client: Client, tmp_path: Path) -> None:
    text = client.open(tmp_path / "fast.dag", "program p\n")
    for number in range(60):
        text.change(f"program p\nlet a = x{number}\n")
        text.ask("hover", "let", 1)
    found: list[str] = []
    while not any("x59" in message for message in found):
        found = _messages(text.diagnostics())
    text.close()
    assert text.diagnostics() == []


# ---- hover ------------------------------------------------------------------------------------------


def test_hover_tells_types_sizes_and_places(client: Client, spmv: Text) -> None:
    assert "`y_l : f32[n] on device`, `4 * n` bytes" in spmv.hover("y_l", 1)
    assert "length from the set-up" in spmv.hover("col_l", 1)
    assert "`rows = 150000`" in spmv.hover("param rows ", 7)
    assert "`n` : i32, per rank" in spmv.hover("scalar n,", 7)
    assert "`yl.block` in {64, 128, 256, 512}, here `64`" in spmv.hover("tune block", 6)
    assert "here `mpi_host`" in spmv.hover("transport", 1)
    assert "gpu `warp_per_row`: `grid(ceil(32 * n / block)) block(block)`" in spmv.hover("kernel spmv", 8)
    assert "param NAME, ... : TYPE = VALUE" in spmv.hover("param", 1)
    assert spmv.hover("// y = A x", 5) == ""
    assert "**formal** `val`" in spmv.hover("val[k]", 1)  # in code


def test_hover_shows_why_an_op_waits(client: Client, spmv: Text) -> None:
    hover = spmv.hover("yr : gpu", 1)
    assert "any of 2 streams" in hover
    assert "- writes `y_r`" in hover
    assert (
        "after `wait_recv`: written: `x.recv -> yr` at 81:20; RAW: `wait_recv` writes the staging buffer of `x_r`"
        in hover
    )
    assert "before `y`: written: `{yl, yr} -> y`" in hover


def test_hover_shows_rounds(client: Client) -> None:
    text = client.open(HEAT, HEAT.read_text())
    text.diagnostics()
    hover = text.hover("inner[t]", 2)
    assert "after `first[t]` 1 round earlier: WAR: " in hover
    assert "before `last[t]` 1 round later: " in hover
    assert "`u[1] : f64[m + 2, n] on device inout`, `8 * (m + 2) * n` bytes" in text.hover("array u", 6)


def test_hover_and_definition_outlive_an_error(client: Client, spmv: Text) -> None:
    """While the text does not parse, the last state that did answers, for the places of the present text."""
    spmv.change(spmv.text.replace("param rows", "// a new line\nparam = ( rows").replace("yl : gpu", "yl : gpu ]"))
    assert [d["code"] for d in spmv.diagnostics()] != []
    assert "`y_r : f32[n] on device`" in spmv.hover("y_r, row", 1)
    (place,) = spmv.ask("definition", "spmv(y_r", 1)
    assert spmv.at(place["range"]) == "spmv"
    assert place["range"]["start"]["line"] == spmv.position("kernel spmv")["line"]


# ---- names ------------------------------------------------------------------------------------------


def test_definitions(client: Client, spmv: Text) -> None:
    def goes(words: str, inside: int, to: str, skip: int) -> None:
        (place,) = spmv.ask("definition", words, inside)
        assert place["range"]["start"] == spmv.position(to, skip), words

    goes("gather(x_send", 1, "kernel gather", 7)
    goes("(x_send,", 2, "array x_send", 6)
    goes("x.recv -> yr", 0, "x : mpi", 0)
    goes("-> yr", 3, "yr : gpu", 0)
    goes("val[k]", 0, "val: in", 0)
    goes("block - 1" if "block - 1" in spmv.text else "/ block)) block", 2, "tune block", 5)
    assert spmv.ask("definition", "banded", 1)[0]["uri"] == (SAMPLES / "spmv/spmv.py").as_uri()
    assert spmv.ask("definition", "product", 1)[0]["range"]["start"]["line"] > 0


def test_references(client: Client, spmv: Text) -> None:
    found = spmv.ask("references", "x_send", 1, context={"includeDeclaration": True})
    assert [spmv.at(place["range"]) for place in found] == ["x_send"] * 3
    fewer = spmv.ask("references", "x_send", 1, context={"includeDeclaration": False})
    assert len(fewer) == 2


def test_completion_by_context(client: Client, spmv: Text) -> None:
    def offered(line: str) -> set[str]:
        spmv.change(SPMV.read_text().replace("  edges explicit", f"{line}\n  edges explicit"))
        return spmv.labels("\n  edges explicit")

    kernels = offered("  z : gpu ")
    assert {"gather", "spmv", "add", "copy"} <= kernels
    assert not kernels & {"x_send", "pack", "param"}
    assert offered("  z : ") == {"gpu", "cpu", "any", "dag", "mpi", "send"}
    assert {"exchange", "allreduce", "bcast"} <= offered("  z : mpi ")
    assert {"send", "recv"} == offered("  x.")
    assert {"pack", "yl", "yr", "y"} <= offered("  pack -> ")
    names = offered("  z : gpu spmv(")
    assert {"block", "x_send", "n_send", "ceil"} <= names
    assert not names & {"pack", "gather", "kernel"}
    types = offered("  array w : ")
    assert {"f32", "i64", "rows"} <= types
    assert not types & {"x_send", "ceil"}
    assert {"device", "host", "pinned", "any"} == offered("  array w : f32[n] on ")
    assert offered("  array w") == set()
    assert offered("  // y") == set()
    assert {"kernel", "param", "edges", "for"} <= offered("  ")
    assert offered("  z : gpu spmv(y_l, ro") >= {"row_ptr_l", "row_ptr_r"}


def test_completion_of_forms(client: Client, spmv: Text) -> None:
    def offered(line: str) -> set[str]:
        spmv.change(SPMV.read_text().replace("  tune block", f"  {line}\n  tune block", 1))
        return spmv.labels("\n  tune block")

    assert offered("forms ") == {"none"}
    assert {"wide", "coarsen"} <= offered("forms {") == offered("forms {wide, ")
    assert "forms" in offered("")


def test_completion_in_code(client: Client, spmv: Text) -> None:
    spmv.change(spmv.text.replace("if (lane == 0)", "bl\n      if (lane == 0)"))
    assert {"block", "row_ptr", "n"} <= spmv.labels("bl\n", 2)


def test_the_header_of_what_is_called(client: Client, spmv: Text) -> None:
    def shown(line: str) -> tuple[str, str]:
        spmv.change(SPMV.read_text().replace("  edges explicit", f"{line}\n  edges explicit"))
        found = spmv.ask("signatureHelp", "\n  edges explicit")
        if found is None:
            return "", ""
        formals = [p["label"] for p in found["signatures"][0]["parameters"]]
        return found["signatures"][0]["label"], formals[found["activeParameter"]]

    label, first = shown("  z : gpu gather(")
    assert (label, first) == ("gather(sent: out f32[n], x: in f32[*], index: in i32[n], n: i32)", "sent: out f32[n]")
    assert shown("  z : gpu gather(x_send[0 .. max(1, 2)], ")[1] == "x: in f32[*]"
    assert shown("  z : gpu spmv.warp_per_row(y_l, row_ptr_l")[1] == "row_ptr: in i32[n + 1]"
    assert shown("  z : gpu gather(x_send, max(") == ("", "")
    assert shown("  z : gpu gather(x_send)") == ("", "")
    assert shown("  // gather(") == ("", "")


def test_symbols(client: Client, spmv: Text) -> None:
    found = client.ask("textDocument/documentSymbol", {"textDocument": {"uri": spmv.uri}})
    top = {symbol["name"]: symbol for symbol in found}
    assert {"rows", "x_l", "gather", "spmv", "pack", "yl", "y"} <= top.keys()
    assert [s["name"] for s in top["spmv"]["children"]] == ["block", "thread_per_row", "warp_per_row"]


def test_communicators(client: Client) -> None:
    good, dag, top = GRID.read_text(), "  squares : gpu", "array a     :"
    text = client.open(GRID, good)
    assert text.diagnostics() == []

    assert "`row = split(floor(rank / 2))`: all ranks" in text.hover("on row", 4)
    assert "`rank` : number of this rank" in text.hover("row.rank", 5)
    assert text.hover("= split(", 3) == text.hover("comm row", 1) == "```dag\ncomm NAME = split(COLOUR [, KEY])\n```"
    assert "**`total.post`** mpi, `on col`" in text.hover("total :", 1)
    for words, inside in (("on row", 4), ("row.rank", 1)):
        (place,) = text.ask("definition", words, inside)
        assert place["range"]["start"] == text.position("comm row", 5)
    found = text.ask("references", "comm row", 6, context={"includeDeclaration": True})
    assert [text.at(place["range"]) for place in found] == ["row"] * 3

    def offered(line: str, before: str) -> set[str]:
        text.change(good.replace(before, f"{line}\n{before}", 1))
        return text.labels("\n" + before)

    assert offered("  q : mpi bcast(c, 0) on ", dag) == offered("  q : mpi exchange on r", dag) == {"row", "col"}
    assert offered("  if row.", dag) == offered("comm half = split(row.", top) == {"rank", "ranks"}
    assert {"row", "col", "rank", "ranks"} <= offered("comm half = split(", top)
    assert offered("comm half = ", top) == {"split"}
    assert offered("comm ", top) == offered("comm ha", top) == set()
    assert offered("array q : f32[n] on ", top) == {"any", "device", "host", "pinned"}

    text.close()


@pytest.mark.parametrize(
    ("words", "instead", "code", "at"),
    [
        ("on row", "on rwo", "unknown-name", "rwo"),
        ("on row", "on c", "type-mismatch", "c"),
        ("row.rank ==", "row.rnk ==", "unknown-name", "rnk"),
        ("row.rank ==", "row ==", "type-mismatch", "row"),
        ("split(rank % px)", "split(hw.sms)", "bad-communicator", "hw.sms"),
        ("split(rank % px)", "gather(rank)", "unknown-name", "gather"),
    ],
)
def test_mistakes_with_communicators(
    client: Client, tmp_path: Path, words: str, instead: str, code: str, at: str
) -> None:
    """One diagnostic each, and none of what an op would have written."""
    text = client.open(tmp_path / "grid2d.dag", GRID.read_text().replace(words, instead, 1))
    assert [(d["code"], text.at(d["range"])) for d in text.diagnostics()] == [(code, at)]
    text.close()


# ---- formatting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_formatting_is_that_of_fmt(client: Client, tmp_path: Path, end: str) -> None:
    ugly = SPMV.read_text().replace("  yl : gpu", "yl   :gpu").replace("rtol 1e-5", "rtol   1e-5").replace("\n", end)
    path = tmp_path / "ugly.dag"
    path.write_bytes(ugly.encode())
    _, pretty = api.format_source(path)
    text = client.open(path, ugly)
    options = {"textDocument": {"uri": text.uri}, "options": {"tabSize": 4, "insertSpaces": True}}
    (edit,) = client.ask("textDocument/formatting", options)
    lines = ugly.split("\n")
    first, last = edit["range"]["start"], edit["range"]["end"]
    assert first["character"] == last["character"] == 0
    before, after = lines[: first["line"]], lines[last["line"] :]
    assert "\n".join([*before, edit["newText"] + "\n".join(after)]) == pretty
    text.change(pretty)
    assert client.ask("textDocument/formatting", options) == []
    text.change("program p\nlet = 1\n")
    assert client.ask("textDocument/formatting", options) == []


def test_a_misspelt_name_is_fixed(client: Client, spmv: Text) -> None:
    good = spmv.text
    spmv.change(good.replace("gather(x_send, x_l", "gather(x_sned, x_l").replace("array y_l", "arary y_l"))
    for right in ("array", "x_send"):  # the second is found once the text parses
        (found,) = [d for d in spmv.diagnostics() if "did you mean" in d["message"]]
        params = {"textDocument": {"uri": spmv.uri}, "range": found["range"], "context": {"diagnostics": [found]}}
        (action,) = client.ask("textDocument/codeAction", params)
        assert action["title"] == f"Change to `{right}`"
        (edit,) = action["edit"]["changes"][spmv.uri]
        assert edit["newText"] == right
        wrong = spmv.at(edit["range"])
        spmv.change(spmv.text.replace(f"{wrong} y_l", f"{right} y_l").replace(f"({wrong},", f"({right},"))
    assert spmv.text == good
    assert spmv.diagnostics() == []
    found["message"] = "`other` is wrong\nhelp: did you mean `x_send`?"
    assert client.ask("textDocument/codeAction", params) == []


# ---- what no editor should send ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hover", "definition", "completion", "references", "signatureHelp"])
def test_a_request_that_cannot_be_read_is_answered(client: Client, spmv: Text, method: str) -> None:
    """With an error that says why; the next request has its answer."""
    context = {"includeDeclaration": True, "triggerKind": 1, "isRetrigger": False}
    document = {"textDocument": {"uri": spmv.uri}, "context": context}
    for position in ({"line": -1, "character": 0}, {"line": 0, "character": 2**31}, {"line": None}, None, [], "0:0"):
        with pytest.raises(AssertionError, match=rf"-32602, 'message': .textDocument/{method}: "):
            client.ask(f"textDocument/{method}", {**document, "position": position})
    with pytest.raises(AssertionError, match="-32602"):
        client.ask(f"textDocument/{method}", None)
    client.ask(f"textDocument/{method}", {**document, "position": {"line": 10**6, "character": 10**6}})


@pytest.mark.parametrize("name", ["a%00b.dag", "a\0b.dag", "%ff.dag", "a%2.dag", "a" * 5000, "[.dag"])
def test_a_document_that_no_file_can_hold(client: Client, name: str) -> None:
    text = client.open(f"file:///{name}", 'program a\ninclude "b.dag"\ndag { x : gpu k() }\n')
    assert any("b.dag" in message for message in _messages(text.diagnostics()))
    text.close()
    assert text.diagnostics() == []


# ---- start and end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    client = Client()
    client.process.send_signal(number)
    assert client.process.wait(timeout=300) == -number
    assert client.left() == (-number, b"")


def test_without_pygls_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError('No module named pygls', name='pygls')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from dagc.cli.main import main; sys.exit(main(['lsp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'dagc[lsp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_answer_is_one_message(client: Client) -> None:
    """Nothing else than messages is on standard output: JSON that is not asked for would end an editor's client."""
    assert json.dumps(client.server["serverInfo"]["name"]) == '"dagc"'
    assert client.server["capabilities"]["textDocumentSync"]["change"] == 1


def test_another_client_agrees() -> None:
    """pygls's own client, which refuses what is not of the protocol's types."""
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    uri, bad = SPMV.as_uri(), "program a\ndag { x : gpu k() }\n"
    here = types.TextDocumentIdentifier(uri)
    found: asyncio.Queue[Sequence[types.Diagnostic]] = asyncio.Queue()
    lines = SPMV.read_text().split("\n")
    row = next(i for i, line in enumerate(lines) if "gpu gather(" in line)
    at = types.Position(row, lines[row].index("gather") + 1)

    async def session() -> None:
        client = LanguageClient("test", "1")
        client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: found.put_nowait(params.diagnostics))
        await client.start_io(sys.executable, "-m", "dagc", "lsp")
        text = types.TextDocumentClientCapabilities(
            completion=types.CompletionClientCapabilities(),
            hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
            publish_diagnostics=types.PublishDiagnosticsClientCapabilities(related_information=True),
        )
        able = types.ClientCapabilities(text_document=text)
        await client.initialize_async(types.InitializeParams(able, root_uri=SAMPLES.as_uri()))
        client.initialized(types.InitializedParams())
        document = types.TextDocumentItem(uri, "dag", 1, SPMV.read_text())
        client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        assert not await asyncio.wait_for(found.get(), 60)
        hover = await client.text_document_hover_async(types.HoverParams(here, at))
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        places = await client.text_document_definition_async(types.DefinitionParams(here, at))
        assert places
        items = await client.text_document_completion_async(types.CompletionParams(here, at))
        assert items
        symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(here))
        assert symbols
        edits = await client.text_document_formatting_async(
            types.DocumentFormattingParams(here, types.FormattingOptions(2, True))
        )
        assert not edits
        whole = types.TextDocumentContentChangeWholeDocument(bad)
        version = types.VersionedTextDocumentIdentifier(2, uri)
        client.text_document_did_change(types.DidChangeTextDocumentParams(version, [whole]))
        assert await asyncio.wait_for(found.get(), 60)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(session())
