"""The user's Python of a `setup` line: loading it and calling its functions, with errors that point into it.

This is the only place where dagc runs code that came with a `.dag`; only commands that run programs use it.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from dagc.base.errors import Diagnostic, ProgramError, UsageError
from dagc.base.source import Span, find_file, read_file
from dagc.ir.program import Program, Setup

_NUMBERS = count()  # of the modules: several run concurrently, one for each size
_PATH = threading.Lock()
_RUNNING = threading.local()  # `process`: that in which this thread runs code of a set-up
_exit_now = os._exit


def _exit(status: int) -> None:
    """`os._exit`, but an exception if a set-up calls it: the command would end at once without a message.

    In processes that a set-up forked, it exits as usual.
    """
    if getattr(_RUNNING, "process", None) == os.getpid():
        raise SystemExit(f"it calls os._exit({status})")
    _exit_now(status)


@contextmanager
def _exits_raise() -> Iterator[None]:
    os._exit = _exit  # type: ignore[assignment]
    before, _RUNNING.process = getattr(_RUNNING, "process", None), os.getpid()
    try:
        yield
    finally:
        _RUNNING.process = before


def refuse(program: Program, code: str, message: str, span: Span, help: str) -> ProgramError:
    """One diagnostic, as an exception."""
    return ProgramError([Diagnostic(code, message, span, help)], dict(program.sources))


class SetupCode:
    """The loaded set-up file of a program."""

    def __init__(self, program: Program, setup: Setup, base_dir: Path) -> None:
        """Run the file at `base_dir / setup.file`, or where `dagc.base.source.find_file` finds it.

        Raises ProgramError (no such file, or outside of the program's folder), UsageError (it failed).
        """
        self._program = program
        self._setup = setup
        self._path = base_dir / setup.file
        try:
            self._path = find_file(setup.file, base_dir, base_dir)
            text = read_file(self._path, regular=True)
        except PermissionError as error:
            message = f"cannot read the set-up file {self._path}: {error.strerror}"
            help = "move it there, or give its folder with -I DIR"
            raise refuse(program, "setup-file", message, setup.span, help) from None
        except OSError as error:
            message = f"cannot read the set-up file {self._path}: {error.strerror}"
            help = f"write it; it defines `{setup.function}(rank, size, seed, ...)`"
            raise refuse(program, "setup-file", message, setup.span, help) from None
        self._module = types.ModuleType(f"_dagc_setup_{self._path.stem}_{next(_NUMBERS)}")
        self._module.__file__ = str(self._path)
        with self._running("while it was loaded"):
            # Compiled here rather than imported: no name in sys.modules to clash with, no __pycache__ beside the file.
            exec(compile(text, str(self._path), "exec"), self._module.__dict__)

    def function(self, name: str, span: Span) -> Callable[..., Any]:
        """A function of the file. Raises ProgramError at `span` if there is none of that name."""
        defined = getattr(self._module, name, None)
        if not callable(defined):
            own = sorted(n for n, v in vars(self._module).items() if inspect.isfunction(v) and not n.startswith("_"))
            help = f"its functions are {', '.join(own)}" if own else f"define `{name}` in it"
            raise refuse(self._program, "setup-function", f"{self._setup.file} has no function `{name}`", span, help)
        return defined  # type: ignore[no-any-return]

    def call(
        self, name: str, span: Span, args: tuple[Any, ...], named: Mapping[str, Any], rank: int, wanted: Sequence[str]
    ) -> dict[str, Any]:
        """Call a function that must return a dict with names as keys, `wanted`. Raises ProgramError or UsageError."""
        function = self.function(name, span)
        try:
            inspect.signature(function).bind(*args, **named)
        except TypeError as error:
            message = f"`{name}` of {self._setup.file} cannot be called: {error}"
            help = f"it is called as {name}({_call_text(args, named)})"
            raise refuse(self._program, "setup-arguments", message, span, help) from None
        with self._running(f"in {name}(rank={rank})"):
            result = function(*args, **named)
        if not isinstance(result, dict) or not all(isinstance(key, str) for key in result):
            message = f"`{name}` of {self._setup.file} returned {type(result).__name__}, not a dict by declared names"
            raise refuse(self._program, "setup-result", message, span, _dict_help(wanted))
        return result

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Makes the file's folder importable. An exception becomes a UsageError with its line."""
        folder = str(self._path.parent.resolve())
        # A new list each time: another thread may be iterating over the old one to import something.
        with _PATH:
            sys.path = [folder, *sys.path]
        sys.modules[self._module.__name__] = self._module  # dataclasses and pickling look there
        try:
            with _exits_raise():
                yield
        except (Exception, SystemExit) as error:
            help = f"correct {self._path.name}: it failed {what}"
            if isinstance(error, ValueError):  # what a set-up raises for an input that it refuses
                help = f"give another input or parameter, or {help}"
            raise UsageError(f"{self._place(error)}: {_reason(error)}", help) from None
        finally:
            sys.modules.pop(self._module.__name__, None)
            with _PATH:
                left = list(sys.path)
                if folder in left:
                    left.remove(folder)
                sys.path = left

    def _place(self, error: BaseException) -> str:
        """`file:line` of the innermost frame in the set-up's folder."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno or 1}:{error.offset or 1}"
        place = f"{self._path}:1"
        folder = self._path.parent.resolve()
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file == str(self._path) or Path(file).resolve().parent == folder:
                place = f"{file}:{trace.tb_lineno}"
            trace = trace.tb_next
        return place


def _reason(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _dict_help(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name!r}: ..." for name in names[:3]) or "'x': ..."
    return f"return a dict such as {{{shown}{', ...' if len(names) > 3 else ''}}}"


def _call_text(args: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    shown = ["data" if isinstance(a, dict) else str(a) for a in args]
    return ", ".join(shown + [f"{k}={v!r}" for k, v in named.items()])
