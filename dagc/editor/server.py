"""The language server: speaks the Language Server Protocol over standard input and output.

One thread analyses texts, one after the other; requests are answered meanwhile from the last analysis. The code of a
program (its set-up, its references) is never run, and no file is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.uris import from_fs_path, to_fs_path

from dagc.base.errors import MOST_SHOWN, DagcError, Diagnostic, ProgramError, Severity, printable
from dagc.base.resources import __version__
from dagc.base.source import LARGEST, Source, Span, find_file, read_file
from dagc.editor.complete import complete, signature
from dagc.editor.hover import Described, keyword
from dagc.editor.names import Declaration, Kind, NameIndex, index_of
from dagc.editor.positions import Lines, TextMap, edit_between, moves_between
from dagc.lang import ast
from dagc.lang.fmt import format_source
from dagc.lang.syntax import TokenKind, scan
from dagc.passes import Analysis, analysis_of

_WORD = re.compile("[A-Za-z0-9_]")
_SUGGESTION = re.compile(r"\A[^`]*`(?P<wrong>\w+)`[\s\S]*did you mean `(?P<right>\w+)`\?")
PAUSE = 0.2  # seconds without a change before a text is analysed
_SEVERITY = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.NOTE: lsp.DiagnosticSeverity.Information,
}
_SYMBOLS = {
    Kind.PARAM: lsp.SymbolKind.Constant, Kind.LET: lsp.SymbolKind.Constant, Kind.ENUM: lsp.SymbolKind.Enum,
    Kind.SCALAR: lsp.SymbolKind.Variable, Kind.ARRAY: lsp.SymbolKind.Array, Kind.PART: lsp.SymbolKind.Array,
    Kind.TUNE: lsp.SymbolKind.Property, Kind.FEATURE: lsp.SymbolKind.Property, Kind.KERNEL: lsp.SymbolKind.Function,
    Kind.IMPL: lsp.SymbolKind.Method, Kind.DAG: lsp.SymbolKind.Class, Kind.OP: lsp.SymbolKind.Event,
    Kind.MESSAGE: lsp.SymbolKind.Event, Kind.PROGRAM: lsp.SymbolKind.Module,
}  # fmt: skip
_COMPLETIONS = {
    Kind.KERNEL: lsp.CompletionItemKind.Function, Kind.IMPL: lsp.CompletionItemKind.Method,
    Kind.DAG: lsp.CompletionItemKind.Class, Kind.OP: lsp.CompletionItemKind.Event,
    Kind.MESSAGE: lsp.CompletionItemKind.Event, Kind.PARAM: lsp.CompletionItemKind.Constant,
    Kind.LET: lsp.CompletionItemKind.Constant, Kind.ENUM: lsp.CompletionItemKind.Enum,
    Kind.LABEL: lsp.CompletionItemKind.EnumMember, None: lsp.CompletionItemKind.Keyword,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Names:
    """The index of the last text that parsed, and what it was made from."""

    source: Source
    sources: Mapping[str, Source]
    index: NameIndex


@dataclass
class Document:
    """An open text. `names` and `described` are of its last state that parsed, or that gave a program."""

    path: str
    text: str
    change: int = 0  # counts the changes
    analysed: int = -1  # the change that the diagnostics belong to
    names: _Names | None = None
    described: Described | None = None
    includes: frozenset[str] = frozenset()
    findings: dict[str, list[lsp.Diagnostic]] = field(default_factory=dict)  # of this text, by the address of the file
    work: asyncio.Task[None] | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def moves(self) -> TextMap:
        """From the text of `names` to the present one."""
        assert self.names is not None
        return _moves(self.names.source.text, self.text)


@lru_cache(maxsize=4)
def _moves(old: str, new: str) -> TextMap:
    return moves_between(old, new)


_lines = lru_cache(maxsize=8)(Lines)  # finding the lines of a text takes longer than finding a place in them


class Protocol(LanguageServerProtocol):
    """Answers every request: pygls drops one that it cannot read, a negative line for example, and the client waits."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The message of a JSON object; None for one that has been answered."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self.refuse(data["id"], lsp.ErrorCodes.InvalidParams, f"{data['method']}: {_reason(error)}")
            return None

    def handle_message(self, message: Any) -> None:
        """Delegate a message. JSON that is not one is refused."""
        if hasattr(message, "jsonrpc"):
            super().handle_message(message)
        elif message is not None:
            self.refuse(None, lsp.ErrorCodes.InvalidRequest, "not a message of JSON-RPC 2.0")

    def refuse(self, request: Any, code: lsp.ErrorCodes, message: str) -> None:
        """Answer with an error; `request` is None where the message has no readable number."""
        self._send_response(request, error=lsp.ResponseError(code.value, message))


def _reason(error: BaseException) -> str:
    """The innermost reasons why a value is not of the protocol's type."""
    cause: BaseException = error.__cause__ or error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return str(cause) or type(cause).__name__


class Server(LanguageServer):
    """Keeps the open texts. Made by `server`."""

    def __init__(self) -> None:
        # Whole texts: other servers and clients disagree about what ends a line.
        super().__init__(
            "dagc", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full, protocol_cls=Protocol
        )
        self.documents: dict[str, Document] = {}
        self.analyst = ThreadPoolExecutor(1, "analysis")

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Answer text that is not JSON."""
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            cast("Protocol", self.protocol).refuse(None, lsp.ErrorCodes.ParseError, f"not JSON: {error}")
        else:
            super().report_server_error(error, source)

    # ---- analysis -------------------------------------------------------------------------------

    def changed(self, uri: str, text: str) -> None:
        """Analyse a text soon, and those that include it."""
        document = self.documents.get(uri)
        if document is None:
            document = self.documents[uri] = Document(_path(uri), text)
        else:
            document.text = text
            document.change += 1
        self._start(uri, document)
        self.again(uri)

    def again(self, changed: str) -> None:
        """Analyse the texts that include a file, which has changed."""
        path = _resolved(_path(changed))
        for uri, document in self.documents.items():
            if path in document.includes:
                document.change += 1
                self._start(uri, document)

    def including(self, document: Document) -> Document:
        """A text whose program contains the declarations of this one: itself, or one that includes it."""
        if document.described is not None:
            return document
        path = _resolved(document.path)
        documents = (d for d in self.documents.values() if path in d.includes and d.described is not None)
        return next(documents, document)

    def _start(self, uri: str, document: Document) -> None:
        if document.work is None or document.work.done():
            document.work = asyncio.ensure_future(self._work(uri, document))

    async def _work(self, uri: str, document: Document) -> None:
        while document.analysed != document.change and self.documents.get(uri) is document:
            change = document.change
            if document.analysed >= 0:
                await asyncio.sleep(PAUSE)
                if change != document.change:
                    continue
            source = Source(document.path, document.text)
            loop = asyncio.get_running_loop()
            opened = {_resolved(d.path): d.text for d in self.documents.values() if d is not document}
            analysis, names = await loop.run_in_executor(self.analyst, _analysed, source, opened)
            document.analysed = change
            document.names = names or document.names
            if analysis.graph is not None or (document.described is None and analysis.program is not None):
                document.described = Described(analysis)
            document.includes = frozenset(_resolved(p) for p in analysis.sources if p != source.path)
            document.ready.set()
            if change == document.change and self.documents.get(uri) is document:
                self._publish(uri, document, analysis)

    async def analysed(self, uri: str) -> Document | None:
        """The text with its first analysis done. None for a text that is not open."""
        document = self.documents.get(uri)
        if document is not None:
            await document.ready.wait()
        return document

    # ---- diagnostics ----------------------------------------------------------------------------

    def _publish(self, uri: str, document: Document, analysis: Analysis) -> None:
        """Send the diagnostics of a text, for each file that they point into."""
        lines = {path: self.lines(source.text) for path, source in analysis.sources.items()}
        uris = {path: self.address(path) for path in analysis.sources} | {document.path: uri}
        findings: dict[str, list[lsp.Diagnostic]] = {uri: []}
        errors_first = sorted(analysis.diagnostics, key=lambda d: d.severity is not Severity.ERROR)
        for diagnostic in errors_first[:MOST_SHOWN]:
            to = uris[diagnostic.span.file]
            findings.setdefault(to, []).append(_diagnostic(diagnostic, lines, uris))
        before, document.findings = document.findings, findings
        for to in {*before, *findings}:
            self._send(to)

    def _send(self, uri: str) -> None:
        """Publish the diagnostics of all texts for a file."""
        diagnostics: list[lsp.Diagnostic] = []
        for document in self.documents.values():
            diagnostics += [d for d in document.findings.get(uri, ()) if d not in diagnostics]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))

    def close(self, uri: str) -> None:
        """Forget a text and its diagnostics."""
        document = self.documents.pop(uri, None)
        if document is None:
            return
        document.ready.set()
        for to in {uri, *document.findings}:
            self._send(to)
        self.again(uri)  # files that include it read the saved text

    # ---- places -----------------------------------------------------------------------------------

    def lines(self, text: str) -> Lines:
        """The lines of a text, with the encoding that the client and this server have agreed on."""
        return _lines(text, lsp.PositionEncodingKind(self.workspace.position_encoding or "utf-16").value)

    def address(self, path: str) -> str:
        """The address of a file: as the client writes it, if the file is open."""
        resolved = _resolved(path)
        return next((uri for uri, d in self.documents.items() if _resolved(d.path) == resolved), _uri(path))

    def offset(self, document: Document, position: lsp.Position) -> int:
        return self.lines(document.text).offset(position.line, position.character)

    def location(self, document: Document, span: Span) -> lsp.Location:
        """The present location of a place of the last text that parsed."""
        assert document.names is not None
        text = document.names.sources[span.file].text
        if span.file == document.path:
            moves = document.moves()
            text, span = document.text, Span(moves.to_new(span.start), moves.to_new(span.end), span.file)
        return lsp.Location(self.address(span.file), _range(self.lines(text), span))

    def meant(self, document: Document, position: lsp.Position) -> tuple[Declaration, ...]:
        """The declarations of the name at a position of the present text."""
        if document.names is None:
            return ()
        offset = self.offset(document, position)
        old, word, index = document.moves().to_old(offset), _word(document.text, offset), document.names.index
        use = index.at(document.path, old)
        if use is not None and use.meant[0].name == word:
            return use.meant
        if document.text == document.names.source.text or not _in_language(document.text, offset):
            return ()
        scope = index.scope_at(document.path, old)  # a word that has been written since
        return tuple(next(filter(None, (scope.find(space, word) for space in ("values", "ops", "callables"))), ()))


def _analysed(source: Source, opened: Mapping[str, str]) -> tuple[Analysis, _Names | None]:
    """Analyse a text; runs in the thread of analyses."""
    if len(source.text.encode("utf-8", "surrogatepass")) > LARGEST:
        help = "use `for`, or move repeated items into a named `dag`"
        return _not_analysed(source, "too-large", f"larger than {LARGEST >> 10} KiB: not checked", help), None
    try:
        analysis = analysis_of(source, opened=opened)
        parsed = analysis.parsed
        if parsed is None:
            return analysis, None
        if _is_included(parsed.module.program, parsed.items):
            analysis = Analysis(source, (), parsed.sources, parsed)
        return analysis, _Names(source, parsed.sources, index_of(parsed.items, parsed.sources, parsed.module))
    except Exception as error:  # a bug must not end the server: the next change may be analysed
        traceback.print_exc()
        return _not_analysed(source, "internal-error", f"dagc: {type(error).__name__}: {error}", "report this"), None


def _not_analysed(source: Source, code: str, message: str, help: str) -> Analysis:
    return Analysis(source, (Diagnostic(code, message, Span(0, 0, source.path), help),), {source.path: source})


def _is_included(program: str | None, items: Iterable[object]) -> bool:
    """Whether a text is meant to be included: names that it lacks are in the text that includes it."""
    return program is None and bool(items) and not any(isinstance(item, ast.MainDag) for item in items)


# ---- features -----------------------------------------------------------------------------------


async def _hover(server: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    document = await server.analysed(params.text_document.uri)
    if document is None:
        return None
    meant = server.meant(document, params.position)
    if meant and document.names is not None:
        described = server.including(document).described or Described(Analysis(document.names.source, (), {}))
        loop = asyncio.get_running_loop()
        sources = dict(document.names.sources)
        text = await loop.run_in_executor(server.analyst, described.hover, meant, sources)
    else:
        offset = server.offset(document, params.position)
        text = keyword(_word(document.text, offset))
        text = text if text and _in_language(document.text, offset) else ""
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, printable(text))) if text else None


async def _definition(server: Server, params: lsp.DefinitionParams) -> list[lsp.Location]:
    document = await server.analysed(params.text_document.uri)
    if document is None or document.names is None:
        return []
    meant = server.meant(document, params.position)
    if meant:
        return [server.location(document, d.span) for d in meant]
    return _in_other_file(server, document, params.position)


def _in_other_file(server: Server, document: Document, position: lsp.Position) -> list[lsp.Location]:
    """The file, or the function in it, that a set-up, a reference, an `include` or a `from` names. It is only read."""
    assert document.names is not None
    index = document.names.index
    use = index.file_at(document.path, document.moves().to_old(server.offset(document, position)))
    if use is None:
        return []
    file = use.file or next((f.file for f in index.files if f.file and f.function and f.file.endswith(".py")), "")
    try:
        directory = Path(document.path).parent
        path = find_file(file, Path(use.span.file).parent, directory)
        text = read_file(path, regular=True).decode("utf-8", "replace")
    except OSError:
        return []
    at = text.find(f"def {use.function}(") if path.suffix == ".py" else text.find(f" {use.function}(")
    at = max(0, at) if use.function else 0
    return [lsp.Location(server.address(str(path)), _range(server.lines(text), Span(at, at)))]


async def _references(server: Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    document = await server.analysed(params.text_document.uri)
    if document is None or document.names is None:
        return []
    meant = server.meant(document, params.position)
    declared = {d.span for d in meant} if not params.context.include_declaration else set()
    uses = document.names.index.uses_of(meant)
    return [server.location(document, use.span) for use in uses if use.span not in declared]


async def _completion(server: Server, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    document = await server.analysed(params.text_document.uri)
    if document is None:
        return []
    offset = server.offset(document, params.position)
    index = document.names.index if document.names is not None else index_of((), {})
    scope = index.root
    if document.names is not None:
        scope = index.scope_at(document.path, document.moves().to_old(offset))
    return [
        lsp.CompletionItem(p.label, kind=_COMPLETIONS.get(p.kind, lsp.CompletionItemKind.Variable), detail=p.detail)
        for p in complete(document.text, offset, index, scope)
    ]


async def _signature(server: Server, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    document = await server.analysed(params.text_document.uri)
    if document is None or document.names is None:
        return None
    names, offset = document.names, server.offset(document, params.position)
    scope = names.index.scope_at(document.path, document.moves().to_old(offset))
    help = signature(document.text, offset, names.index, scope, names.sources)
    if help is None:
        return None
    formals = [lsp.ParameterInformation(formal) for formal in help.formals]
    return lsp.SignatureHelp([lsp.SignatureInformation(help.label, parameters=formals)], 0, help.active)


async def _symbols(server: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = await server.analysed(params.text_document.uri)
    if document is None or document.names is None:
        return []
    lines, moves = server.lines(document.text), document.moves()
    top: list[lsp.DocumentSymbol] = []
    owners: list[tuple[Span, lsp.DocumentSymbol]] = []
    for declaration in sorted(document.names.index.declarations, key=lambda d: (d.whole.start, -d.whole.end)):
        if declaration.span.file != document.path or declaration.kind not in _SYMBOLS:
            continue
        whole, name = (Span(moves.to_new(s.start), moves.to_new(s.end)) for s in (declaration.whole, declaration.span))
        symbol = lsp.DocumentSymbol(
            declaration.name, _SYMBOLS[declaration.kind], _range(lines, whole | name), _range(lines, name),
            detail=declaration.kind.value, children=[],
        )  # fmt: skip
        while owners and owners[-1][0].end <= declaration.whole.start:
            owners.pop()
        (owners[-1][1].children if owners else top).append(symbol)  # type: ignore[union-attr]
        if declaration.kind in (Kind.KERNEL, Kind.DAG, Kind.OP, Kind.IMPL):
            owners.append((declaration.whole, symbol))
    return top


async def _formatting(server: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = server.documents.get(params.text_document.uri)
    if document is None:
        return []
    source = Source(document.path, document.text)
    try:
        new = await asyncio.get_running_loop().run_in_executor(server.analyst, format_source, source)
    except ProgramError:
        return []  # the diagnostics say why
    except DagcError as error:
        server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, error.message))
        return []
    if new == source.text:
        return []
    edit = edit_between(source.text, new)
    start = source.text.rfind("\n", 0, edit.start) + 1  # whole lines
    end = source.text.find("\n", edit.old_end) + 1 or len(source.text)
    lines = new[start : end - edit.old_end + edit.new_end]
    return [lsp.TextEdit(_range(server.lines(source.text), Span(start, end)), lines)]


async def _fixes(server: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """The fixes of misspelt names: the name that the diagnostic suggests."""
    uri = params.text_document.uri
    document = server.documents.get(uri)
    if document is None:
        return []
    out = []
    for diagnostic in params.context.diagnostics:
        match = _SUGGESTION.search(diagnostic.message)
        start = server.offset(document, diagnostic.range.start)
        word = _word(document.text, start)
        if match is None or word != match["wrong"] or not document.text.startswith(word, start):
            continue
        place = _range(server.lines(document.text), Span(start, start + len(word)))
        edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(place, match["right"])]})
        title = f"Change to `{match['right']}`"
        out.append(lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, [diagnostic], is_preferred=True, edit=edit))
    return out


def server() -> Server:
    """A server with all its features; `start_io` runs it."""
    language_server = Server()
    feature = language_server.feature

    @feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(server: Server, params: lsp.DidOpenTextDocumentParams) -> None:
        server.changed(params.text_document.uri, params.text_document.text)

    @feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(server: Server, params: lsp.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.changed(uri, server.workspace.get_text_document(uri).source)

    @feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(server: Server, params: lsp.DidSaveTextDocumentParams) -> None:
        server.again(params.text_document.uri)

    @feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def written(server: Server, params: lsp.DidChangeWatchedFilesParams) -> None:
        for change in params.changes:
            server.again(change.uri)

    @feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(server: Server, params: lsp.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    feature(lsp.TEXT_DOCUMENT_HOVER)(_hover)
    feature(lsp.TEXT_DOCUMENT_DEFINITION)(_definition)
    feature(lsp.TEXT_DOCUMENT_REFERENCES)(_references)
    feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", ":"]))(_completion)
    feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))(_signature)
    feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]))(_fixes)
    feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(_symbols)
    feature(lsp.TEXT_DOCUMENT_FORMATTING)(_formatting)
    return language_server


def serve() -> None:
    """Serve one client on standard input and output, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # nothing to clean up; a handler would wait for the thread that reads
    # Messages that cannot be read are answered; a trace of pygls says nothing more.
    for name in ("pygls.protocol.json_rpc", "pygls.io_"):
        logging.getLogger(name).addFilter(lambda record: not str(record.msg).startswith("Unable to "))
    stdout = sys.stdout.buffer
    sys.stdout = sys.stderr  # what anything prints is not a message of the protocol
    server().start_io(stdout=stdout)


# ---- values of the protocol ---------------------------------------------------------------------


def _path(uri: str) -> str:
    """The path of a file; the address itself of a text that is not on disk, or of one that no file can have."""
    try:
        path = (to_fs_path(uri) if uri.startswith("file:") else None) or uri
    except ValueError:
        return uri
    return uri.replace("\0", "%00") if "\0" in path else path


def _resolved(path: str) -> str:
    """A path without links, for comparisons; an address that is not a file is unchanged."""
    return os.path.realpath(path) if os.path.isabs(path) else path


def _uri(path: str) -> str:
    return str(from_fs_path(str(Path(path).absolute()))) if not path.startswith("untitled:") else path


def _range(lines: Lines, span: Span) -> lsp.Range:
    start, end = lines.position(span.start), lines.position(span.end)
    return lsp.Range(lsp.Position(*start), lsp.Position(*end))


def _diagnostic(diagnostic: Diagnostic, lines: Mapping[str, Lines], uris: Mapping[str, str]) -> lsp.Diagnostic:
    message = diagnostic.message + (f"\nhelp: {diagnostic.help}" if diagnostic.help else "")
    unused = diagnostic.code.startswith(("unused-", "unreachable-"))
    return lsp.Diagnostic(
        _range(lines[diagnostic.span.file], diagnostic.span),
        printable(message),
        severity=_SEVERITY[diagnostic.severity],
        code=diagnostic.code,
        source="dagc",
        tags=[lsp.DiagnosticTag.Unnecessary] if unused else None,
        related_information=[
            lsp.DiagnosticRelatedInformation(lsp.Location(uris[s.file], _range(lines[s.file], s)), printable(label))
            for s, label in diagnostic.related
        ],
    )


def _word(text: str, offset: int) -> str:
    """The word at an offset, or that ends there."""
    start = end = offset
    while start > 0 and _WORD.match(text, start - 1):
        start -= 1
    while _WORD.match(text, end):
        end += 1
    return text[start:end]


def _in_language(text: str, offset: int) -> bool:
    """Whether an offset is in a word of the language, not in a comment, a string or code."""
    words = (t for t in scan(text) if t.start <= offset <= t.end and t.kind is TokenKind.WORD)
    return next(words, None) is not None
