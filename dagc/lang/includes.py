"""Files that a text reads: included files, and the files of code that it names.

Files of code are read as a whole, with the files that they include, as far as these are found in the same way; the C++
compiler looks for the others. Nothing is run.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from dagc.base.errors import ProgramError
from dagc.base.source import LARGEST, Source, Span, find_file, include_directories, refuse_outside
from dagc.cuda.lexer import includes
from dagc.ir.program import CodeFile
from dagc.lang import ast
from dagc.lang.parse import parse
from dagc.lang.scope import CodeFiles, Report

LARGEST_CODE = 4 << 20  # bytes of all files of code together
SUFFIXES = frozenset((".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".hh"))
_SEARCHED = "_I"  # the directory of files that were found in those of -I
_MOVE = "move it there, or give its directory with -I DIR"
_HELPS = {
    errno.EFBIG: "leave out what the program does not use; name compiled code with `link`",
    errno.ELOOP: "put the file in the place of the link",
}


def read_included(
    items: tuple[ast.Item, ...],
    source: Source,
    sources: dict[str, Source],
    report: Report,
    texts: Mapping[str, str] | None = None,
    opened: Mapping[str, str] | None = None,
) -> tuple[tuple[ast.Item, ...], CodeFiles]:
    """Items with every top-level `include` replaced by what it includes, and the files of code. Reports what cannot be
    read.

    `texts`: path -> text, instead of files: then no file is read. `opened`: resolved path -> text, of files that an
    editor has open: instead of what is saved. A file must lie below the directory of the program, or
    below one that the user has named (`dagc.base.source.find_file`).
    """
    reader = _Reader(sources, report, texts, Path(source.path).parent, opened=opened or {})
    included = reader.included(items, source, "", (_resolved(Path(source.path)),))
    for text, directory, each in reader.pending:
        for code in _codes(each):
            with report.guard():
                reader.code(code, text, directory)
    return included, reader.named()


def _codes(item: object) -> Iterator[ast.Code]:
    """All code in an item of the program."""
    if isinstance(item, ast.Code):
        yield item
    elif isinstance(item, ast.Prepare):
        yield item.code
    elif isinstance(item, ast.Feature):
        yield from _codes(item.value)
    elif isinstance(item, ast.Kernel | ast.Impl | ast.For):
        for inner in item.items:
            yield from _codes(inner)
    elif isinstance(item, ast.If):
        for inner in (*item.then, *(item.otherwise or ())):
            yield from _codes(inner)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path


@dataclass(slots=True)
class _Reader:
    """`directory`, here and below: where a text lies, relative to the program's directory `top`, "" for that itself."""

    sources: dict[str, Source]
    report: Report
    texts: Mapping[str, str] | None
    top: Path
    directories: dict[str, Path] = field(default_factory=dict)  # `include "folder/"`, by its name relative to `top`
    files: dict[str, str] = field(default_factory=dict)  # name relative to `top` -> key in `sources`
    written: dict[tuple[str, str], str] = field(default_factory=dict)  # (file of the text, name in it) -> name
    pending: list[tuple[Source, str, ast.Item]] = field(default_factory=list)  # items that may hold code
    used: dict[str, None] = field(default_factory=dict)  # directories of texts whose code includes files
    opened: Mapping[str, str] = field(default_factory=dict)  # see `read_included`

    # ---- texts of the language --------------------------------------------------------------

    def included(
        self, items: tuple[ast.Item, ...], source: Source, directory: str, stack: tuple[Path, ...]
    ) -> tuple[ast.Item, ...]:
        out: list[ast.Item] = []
        for item in items:
            if isinstance(item, ast.Include):
                with self.report.guard():
                    if item.file.endswith("/"):
                        self._directory(item, source, directory)
                    else:
                        out += self._read(item, source, directory, stack)
            else:
                self.pending.append((source, directory, item))
                out.append(item)
        return tuple(out)

    def _read(self, item: ast.Include, source: Source, directory: str, stack: tuple[Path, ...]) -> tuple[ast.Item, ...]:
        report, sources = self.report, self.sources
        path = self._path(item.file, source, item.span)
        if _resolved(path) in stack:
            report.fail("include-cycle", f"`{item.file}` includes itself", item.span, "drop one of the includes")
        if str(path) in sources:
            help = "include it once"
            report.fail("include-twice", f"`{item.file}` is included twice", item.span, help)
        if path.is_dir():
            help = f'write `include "{item.file}/"` for a directory of headers'
            report.fail("missing-file", f"`{item.file}` is a directory", item.span, help)
        other = self._text(path, item.file, source, item.span)
        sources[other.path] = other
        if sum(len(s.text) for s in sources.values()) > LARGEST:
            message = f"with `{item.file}` the texts of the program are larger than {LARGEST >> 10} KiB"
            report.fail("too-large", message, item.span, "include less")
        try:
            module = parse(other)
        except ProgramError as error:
            if not item.file.endswith(".dag"):
                self._report_other_language(item, other, error)
            for diagnostic in error.diagnostics:
                report.add(diagnostic)
            return ()
        if module.program is not None:
            at = ((module.span, "here"),)
            message = f"`{item.file}` has its own `program` line"
            report.error("wrong-place-of-item", message, item.span, "drop that line from the included file", at)
        below = posixpath.dirname(self._name(item.file, path, source, directory))
        return self.included(module.items, other, below, (*stack, _resolved(path)))

    def _path(self, name: str, source: Source, span: Span) -> Path:
        """The path of a file that a text names."""
        parent = Path(source.path).parent
        if self.texts is not None:
            parts = Path(name).parts
            others = [p for p in map(Path, self.texts) if p.parts[-len(parts) :] == parts]
            path = parent / name if str(parent / name) in self.texts or len(others) != 1 else others[0]
            if str(path) not in self.texts:
                help = "measure again into another file"
                self.report.fail("missing-file", f"the text of `{name}` was not kept", span, help)
            return path
        try:
            return find_file(name, parent, self.top)
        except PermissionError as error:
            self._refuse(name, span, error, _MOVE)
        except OSError as error:
            self._refuse(name, span, error, f"give a path relative to `{source.path}`")

    def _refuse(self, name: str, span: Span, error: OSError, help: str) -> NoReturn:
        """`help`: where the kind of the error has none of its own."""
        self.report.fail(
            "missing-file", f"cannot read `{name}`: {error.strerror or error}", span, _HELPS.get(error.errno or 0, help)
        )

    def _text(self, path: Path, name: str, source: Source, span: Span, *, code: bool = False) -> Source:
        if self.texts is not None:
            return Source(str(path), self.texts[str(path)])
        if self.opened and (text := self.opened.get(str(_resolved(path)))) is not None:
            return Source(str(path), text)
        try:
            return Source.read(path, regular=True, any_encoding=code)
        except OSError as error:
            self._refuse(name, span, error, f"give a path relative to `{source.path}`")
        except (UnicodeDecodeError, ValueError):
            what = "a text: it has a NUL" if code else "a text in UTF-8"
            self.report.fail("missing-file", f"`{name}` is not {what}", span, "save it as UTF-8")

    def _report_other_language(self, item: ast.Include, other: Source, error: ProgramError) -> NoReturn:
        """Report an included file that is not in the language. Its lines are not shown: it may be any file."""
        line, column = other.line_column(error.diagnostics[0].span.start)
        message = f"`{item.file}` is not a text of the language (line {line}, column {column})"
        help = "include another file; errors in files that end in .dag are shown in full"
        self.report.fail("missing-file", message, item.span, help)

    # ---- code -------------------------------------------------------------------------------

    def _directory(self, item: ast.Include, source: Source, directory: str) -> None:
        """`include "folder/"`: code finds headers there."""
        path = Path(source.path).parent / item.file
        if not re.fullmatch(r"[\w./ +@-]+", item.file):  # it becomes a word of CMake
            help = "rename it: letters, digits, spaces and `._+@-`"
            self.report.fail("missing-file", f"`{item.file}` is not a name that CMake takes", item.span, help)
        if self.texts is None:
            try:
                refuse_outside(path, self.top)
            except PermissionError as error:
                self._refuse(item.file, item.span, error, _MOVE)
            except OSError as error:
                self._refuse(item.file, item.span, error, "rename it")
            if not path.is_dir():
                help = f"give a path relative to `{source.path}`"
                self.report.fail("missing-file", f"there is no directory `{item.file}`", item.span, help)
        self.directories.setdefault(posixpath.normpath(posixpath.join(directory, item.file)), path)

    def code(self, code: ast.Code, source: Source, directory: str) -> None:
        """Reads the file that `code` names, or those that its text includes."""
        if code.file is None:
            if self._headers(code.text or "", Path(source.path).parent, directory, code.span):
                self.used[directory] = None
            return
        if posixpath.splitext(code.file)[1] not in SUFFIXES:
            help = f"name a file that ends in {', '.join(sorted(SUFFIXES))}; link compiled code with `link`"
            self.report.fail(
                "bad-code-file", f"`{code.file}` does not have the suffix of a C++ or CUDA file", code.span, help
            )
        path = self._path(code.file, source, code.span)
        name = self._name(code.file, path, source, directory)
        self.written[source.path, code.file] = name
        self._add(name, path, code.file, source, code.span)

    def _name(self, written: str, path: Path, source: Source, directory: str) -> str:
        """Where a file lies that a text names: relative to `top`, or in the directory of those found with -I."""
        in_directory = path == Path(source.path).parent / written or self.texts is not None
        return posixpath.normpath(posixpath.join(directory if in_directory else _SEARCHED, written))

    def _add(self, name: str, path: Path, written: str, source: Source, span: Span) -> None:
        """Add a file of code and its included files."""
        if name in self.files:
            return
        if posixpath.isabs(name):
            help = f"give a path relative to `{source.path}`"
            self.report.fail("missing-file", f"`{written}` is an absolute path", span, help)
        text = self._text(path, written, source, span, code=True)
        self.files[name] = text.path
        self.sources[text.path] = text
        if sum(len(self.sources[p].text) for p in self.files.values()) > LARGEST_CODE:
            message = f"with `{written}` the files of code are larger than {LARGEST_CODE >> 20} MiB"
            self.report.fail("too-large", message, span, "link a library with `link`")
        self._headers(text.text, path.parent, posixpath.dirname(name), span, text)

    def _headers(self, text: str, parent: Path, directory: str, span: Span, source: Source | None = None) -> bool:
        """Add the headers that a text includes and that are found; returns whether there are any."""
        added = False
        for written, quoted in includes(text):
            if posixpath.isabs(written):
                continue  # the compiler finds it where it is
            for base, place in self._places(parent, directory, quoted):
                path = base / written
                if self._exists(path, span):
                    name = posixpath.normpath(posixpath.join(place, written))
                    self._add(name, path, written, source or Source(str(path), ""), span)
                    added = True
                    break
            else:
                kept = self._kept(written)
                if kept is not None:  # found with -I when the text was kept
                    self._add(
                        posixpath.normpath(f"{_SEARCHED}/{written}"), kept, written, source or Source("", ""), span
                    )
                    added = True
        return added

    def _kept(self, written: str) -> Path | None:
        """The text of the given ones whose path ends in this name, if there is only one."""
        parts = Path(written).parts
        paths = [p for p in map(Path, self.texts or ()) if p.parts[-len(parts) :] == parts]
        return paths[0] if len(paths) == 1 else None

    def _places(self, parent: Path, directory: str, quoted: bool) -> Iterator[tuple[Path, str]]:
        """Directories in which a compiler looks for a header, with their names."""
        if quoted:
            yield parent, directory
        yield from ((path, name) for name, path in self.directories.items())
        yield from ((path, _SEARCHED) for path in include_directories())

    def _exists(self, path: Path, span: Span) -> bool:
        """Whether a header exists and may be read."""
        if self.texts is not None:
            return str(path) in self.texts
        if not os.path.lexists(path) or path.is_dir():
            return False
        try:
            refuse_outside(path, self.top)
        except PermissionError as error:
            self._refuse(str(path), span, error, _MOVE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._refuse(str(path), span, error, "")
            return False
        return True

    def named(self) -> CodeFiles:
        """Files that lie above `top`, and were allowed by -I, move all others down: they keep their places relative to
        each other."""
        up = max((name.split("/").count("..") for name in (*self.files, *self.directories)), default=0)
        root = "/".join(["below"] * up)

        def down(name: str) -> str:
            return posixpath.normpath(posixpath.join(root, name))

        files = {name: down(name) for name in self.files}
        directories = [*self.used, *self.directories]
        directories += [_SEARCHED] if any(name.startswith(f"{_SEARCHED}/") for name in files) else []
        return CodeFiles(
            tuple(CodeFile(files[name], path) for name, path in self.files.items()),
            tuple(dict.fromkeys(down(f) for f in directories)),
            {key: files[name] for key, name in self.written.items() if name in files},
        )
