"""The TextMate grammar of editors/vscode, in an engine with Oniguruma, as in VS Code: every keyword of the grammar and
every token of every sample has its class; code is C++, and ends where it ends."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagc.lang.syntax import FREE, RESERVED, TokenKind, scan

highlight = pytest.importorskip("babi.highlight", reason="no babi: pip install babi")

ROOT = Path(__file__).parents[2]
VSCODE = ROOT / "editors/vscode"
GRAMMAR = VSCODE / "syntaxes/dag.tmLanguage.json"
SAMPLES = sorted((ROOT / "samples").glob("*/*.dag"))
KEYWORD = ("keyword.", "storage.modifier.", "constant.language.")
# Where a keyword that is not a reserved word is one.
CONTEXTS = {
    "device": "array a : f32[n] on device",
    "host": "array a : f32[n] on  host in",
    "pinned": "array a : f32[n] on pinned",
    "grid": "launch grid(1)",
    "block": "launch grid(1) block (2)",
    "shared": "launch shared(4)",
    "explicit": "edges explicit",
    "equal": "rtol 0 nan equal",
    "touching": "a : gpu f(b touching [0 .. 1])",
    "accumulate": "kernel f(y: accumulate f32[n]) {",
    "split": "x : mpi exchange split apart {",
    "after": "rtol 0 after 2 runs",
    "devices": "devices gpu 2",
    "socket": "devices gpu 2, socket 2",
    "runs": "rtol 0 after 2 runs",
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The grammar, with a C++ grammar for code. That of CUDA is VS Code's own: C++ with a few more words."""
    folder = tmp_path_factory.mktemp("grammars")
    shutil.copy(GRAMMAR, folder / "source.dag.json")
    shipped = next(Path(sys.prefix).glob("share/babi/grammar_v1"), None)
    if shipped is None:
        pytest.skip("babi's grammars are not in this environment")
    shutil.copy(shipped / "source.cpp.json", folder / "source.cuda-cpp.json")
    for name in ("source.cpp.json", "source.cpp.embedded.macro.json"):
        shutil.copy(shipped / name, folder / name)
    return highlight.Grammars(str(folder)).compiler_for_scope("source.dag")


def scopes(compiler: Any, text: str) -> list[tuple[str, ...]]:
    """Those of each character."""
    out: list[tuple[str, ...]] = []
    state = compiler.root_state
    for number, line in enumerate(text.splitlines(keepends=True)):
        state, regions = highlight.highlight_line(compiler, state, line, first_line=number == 0)
        found: list[tuple[str, ...]] = [("source.dag",)] * len(line)
        for region in regions:
            found[region.start : region.end] = [region.scope] * (region.end - region.start)
        out += found
    return out


def _is(scope: tuple[str, ...], *classes: str) -> bool:
    return any(part.startswith(classes) for part in scope)


def _rules(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _rules(value)
    elif isinstance(node, list):
        for value in node:
            yield from _rules(value)


@pytest.mark.parametrize("word", sorted(RESERVED | FREE))
def test_every_keyword_is_coloured(compiler: Any, word: str) -> None:
    """A new keyword of grammar/dag.lark (tests/lang/test_parse.py compares RESERVED and FREE with it) needs a place in
    the TextMate grammar, and in CONTEXTS if it may also be a name."""
    text = CONTEXTS[word] if word in FREE else f"{word} "
    at = text.index(word)
    assert all(_is(scope, *KEYWORD) for scope in scopes(compiler, text + "\n")[at : at + len(word)])


@pytest.mark.parametrize("word", sorted(FREE))
def test_a_word_that_may_be_a_name_is_one_elsewhere(compiler: Any, word: str) -> None:
    assert not _is(scopes(compiler, f"require {word} + 1\n")[8], *KEYWORD)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_token_of_every_sample(compiler: Any, path: Path) -> None:
    text = path.read_text()
    found = scopes(compiler, text)
    kinds = {
        TokenKind.COMMENT: ("comment.",),
        TokenKind.STRING: ("string.",),
        TokenKind.NUMBER: ("constant.numeric.",),
        TokenKind.TEXT: ("meta.embedded.", "punctuation.definition.string."),
    }
    for token in scan(text):
        classes = {
            scope for at, scope in enumerate(found[token.start : token.end], token.start) if not text[at].isspace()
        }
        here = f"{path.name}:{text.count(chr(10), 0, token.start) + 1}: {token.text[:40]} {classes}"
        if token.kind in kinds:
            assert all(_is(scope, *kinds[token.kind]) for scope in classes), here
        elif token.kind is TokenKind.WORD and token.text in RESERVED:
            assert all(_is(scope, *KEYWORD) for scope in classes), here
        else:
            assert not any(_is(scope, "comment.", "string.", "meta.embedded.") for scope in classes), here


def test_code_is_cxx_and_ends_where_it_ends(compiler: Any) -> None:
    """Also with brackets, quotes and comments open, and on one line."""
    text = (
        'cuda """\n  for (int i = (1; /* open\n  "open\n"""\nlet a = 1\ncpp """return 0;""" let b = 2\nkernel k() {}\n'
    )
    found = scopes(compiler, text)
    assert _is(found[text.index("for")], "keyword.control.for.cpp", "keyword.control")
    assert _is(found[text.index("for")], "meta.embedded.block.cuda")
    assert _is(found[text.index("return")], "meta.embedded.block.cpp")
    for name in ("let a", "let b", "kernel"):
        assert found[text.index(name)] == ("source.dag", "keyword.other.dag"), name


def test_declared_and_called_names(compiler: Any) -> None:
    text = "program p\nkernel k(a: in f32[n]) {}\ndag {\n  x[i] : gpu k(a)\n}\n"
    found = scopes(compiler, text)
    assert _is(found[text.index("k(a: in")], "entity.name.function")
    assert _is(found[text.index("x[i]")], "entity.name.tag")
    assert _is(found[text.index("k(a)\n}")], "entity.name.function")
    assert _is(found[text.index("f32")], "storage.type")


def test_the_extension_is_whole() -> None:
    """Each file that package.json names is there, each scope of code has its language, each pattern compiles."""
    package = json.loads((VSCODE / "package.json").read_text())
    (language,), (grammar,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    for name in (package["main"], language["configuration"], grammar["path"]):
        assert (VSCODE / name).is_file()
    assert grammar["scopeName"] == json.loads(GRAMMAR.read_text())["scopeName"]
    code = {rule["contentName"] for rule in _rules(json.loads(GRAMMAR.read_text())) if "contentName" in rule}
    assert set(grammar["embeddedLanguages"]) == code
    assert package["contributes"]["configuration"]["properties"]["dag.server"]["default"] == ["dagc", "lsp"]
    json.loads((VSCODE / "language-configuration.json").read_text())
    script = (VSCODE / "extension.js").read_text()
    assert set(re.findall(r'getConfiguration\("(\w+)"\)\.get\("(\w+)"\)', script)) == {("dag", "server")}
    assert [c["command"] for c in package["contributes"]["commands"]] == re.findall(
        r'registerCommand\("([\w.]+)"', script
    )
    readme = (VSCODE / "README.md").read_text()
    assert set(re.findall(r"npm run (\w+)", readme)) == set(package["scripts"])
    assert set(re.findall(r"dagc-([\d.]+)\.vsix", readme)) == {package["version"]}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_client_for_vscode_parses() -> None:
    subprocess.run(["node", "--check", VSCODE / "extension.js"], check=True)


def _in_vim(text: str, folder: Path) -> list[str]:
    """The group of each character, line ends left out."""
    vim = shutil.which("vim")
    if vim is None or "+syntax" not in subprocess.run([vim, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("no vim with +syntax: apt-get install vim")
    (folder / "a.dag").write_text(text)
    (folder / "script.vim").write_text(
        f"set nocompatible\nsyntax on\nset rtp^={ROOT / 'editors/vim'}\nedit {folder / 'a.dag'}\nset filetype=dag\n"
        "let found = []\nfor l in range(1, line('$'))\n  for c in range(1, col([l, '$']) - 1)\n"
        "    call add(found, synIDattr(synID(l, c, 1), 'name'))\n  endfor\nendfor\n"
        f"call writefile(found, '{folder / 'found'}')\nqall!\n"
    )
    subprocess.run([vim, "-es", "-u", "NONE", "-S", folder / "script.vim"], stdin=subprocess.DEVNULL, timeout=300)
    return (folder / "found").read_text().split("\n")[:-1]


def test_vim_has_every_keyword_and_ends_code(tmp_path: Path) -> None:
    lines = [CONTEXTS.get(word, word) for word in sorted(RESERVED | FREE)]
    names = [f"require {word} + 1" for word in sorted(FREE)]
    code = ['cuda """ for (;;) (open', '"""', "let a = 1"]
    found = _in_vim("\n".join([*lines, *names, *code, ""]), tmp_path)
    at = 0
    for word, line in zip(sorted(RESERVED | FREE), lines, strict=True):
        groups = set(found[at + line.index(word) :][: len(word)])
        assert groups <= {"dagStatement", "dagConditional", "dagRepeat", "dagStorage", "dagBoolean"}, word
        at += len(line)
    for line in names:
        assert set(found[at + len("require ") :][:3]) == {""}, line
        at += len(line)
    assert found[at + code[0].index("for")] == "cRepeat"
    assert found[-len("let a = 1") :][:3] == ["dagStatement"] * 3
