"""CUDA's syntax that g++ cannot parse, said in C++: `k<<<g, b>>>(a)` and `extern __shared__ T s[];`.

A scanner, not a parser: it knows comments, literals and brackets, changes what it recognises, and leaves everything
else as it is, so that the C++ compiler speaks about it. Lines keep their numbers.
"""

from __future__ import annotations

_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(")]}")
_PREFIXES = frozenset({"R", "LR", "uR", "UR", "u8R"})  # of raw strings


def rewrite_for_host(text: str) -> str:
    """`text` of the user for the host target: launches and dynamic shared memory as calls into `dagc`."""
    return rewrite_shared(rewrite_launches(text))


def rewrite_launches(text: str) -> str:
    """Each `kernel<<<grid, block, shared, stream>>>(arguments)` as `dagc::launch(kernel, grid, ..., arguments)`.

    `shared` and `stream` may be missing. What is not a complete launch is left as it is.
    """
    out: list[str] = []
    done = floor = at = 0  # no name begins before `floor`
    while at < len(text):
        skipped = _skip(text, at)
        if skipped > at:
            floor = skipped if text[at] == "/" else floor
            at = skipped
            continue
        if text.startswith("<<<", at):
            launch = _launch(text, at, floor)
            if launch is not None:
                start, end, call = launch
                out += [text[done:start], call]
                done = floor = at = end
                continue
            at += 3
            continue
        at += 1
    return "".join(out) + text[done:]


def rewrite_shared(text: str) -> str:
    """Each `extern __shared__ T name[];` as `DAGC_DYNAMIC_SHARED(T, name);`, alignment left out (it is 1024 bytes)."""
    out: list[str] = []
    done = at = 0
    while at < len(text):
        skipped = _skip(text, at)
        if skipped > at:
            at = skipped
            continue
        if not _is_word(text[at]):
            at += 1
            continue
        end = _word_end(text, at)
        if text[at:end] == "extern":
            stop = text.find(";", end)
            call = _shared(text[end:stop]) if stop >= 0 else None
            if call is not None:
                out += [text[done:at], call]
                done = end = stop
        at = end
    return "".join(out) + text[done:]


def _shared(declaration: str) -> str | None:
    """`DAGC_DYNAMIC_SHARED(T, name)` for what stands between `extern` and `;`; None: something else."""
    if "__shared__" not in declaration:
        return None
    rest = declaration.replace("__shared__", "", 1)
    while "__align__" in rest:
        start = rest.index("__align__")
        opening = rest.find("(", start)
        end = _matching(rest, opening) if opening >= 0 else -1
        if end < 0:
            return None
        rest = rest[:start] + rest[end + 1 :]
    compact = rest.rstrip()
    if not compact.endswith("]"):
        return None
    bracket = compact.rindex("[")
    if compact[bracket + 1 : -1].strip():
        return None
    head = compact[:bracket].rstrip()
    name_start = len(head)
    while name_start > 0 and _is_word(head[name_start - 1]):
        name_start -= 1
    kind, name = " ".join(head[:name_start].split()), head[name_start:]
    if not kind or not name:
        return None
    return f"DAGC_DYNAMIC_SHARED({kind}, {name})" + "\n" * declaration.count("\n")


def _launch(text: str, at: int, floor: int) -> tuple[int, int, str] | None:
    """The launch whose `<<<` stands at `at`: where it begins and ends, and the call. None: not a launch."""
    start = _callee_start(text, at, floor)
    if start is None:
        return None
    pieces_end = _configuration(text, at + 3)
    if pieces_end is None:
        return None
    pieces, end = pieces_end
    opening = _skip_blank(text, end + 3)
    closing = _matching(text, opening)
    if closing < 0 or not 2 <= len(pieces) <= 4 or not all(p.strip() for p in pieces):
        return None
    pieces += ["0", "nullptr"][len(pieces) - 2 :] if len(pieces) < 4 else []
    arguments = rewrite_launches(text[opening + 1 : closing])
    between = text[end + 3 : opening]
    last = f", {between}{arguments}" if arguments.strip() else between + arguments
    configuration = ", ".join(p.strip(" \t") for p in pieces)
    call = f"dagc::launch({text[start:at].rstrip(' ')}, {configuration}{last})"
    return start, closing + 1, call


def _callee_start(text: str, at: int, floor: int) -> int | None:
    """Where the kernel's name before `<<<` begins: `a`, `n::a`, `a<T, 3>`, `(c ? a : b)`, `s.a`, `p->a`."""
    i = _skip_blank_back(text, at, floor)
    if i > floor and text[i - 1] == ")":
        return _opening(text, i - 1, floor, "(", ")")
    if i > floor and text[i - 1] == ">":
        opening = _opening(text, i - 1, floor, "<", ">")
        if opening is None:
            return None
        i = _skip_blank_back(text, opening, floor)
    start = i
    while True:
        word = start
        while word > floor and _is_word(text[word - 1]):
            word -= 1
        if word == start or text[word:start] == "operator":
            return None
        start = word
        before = text[max(floor, start - 2) : start]
        if before in ("::", "->"):
            start -= 2
            if not (start > floor and _is_word(text[start - 1])):
                return start if before == "::" else None
        elif before.endswith("."):
            start -= 1
        else:
            return start


def _configuration(text: str, at: int) -> tuple[list[str], int] | None:
    """The pieces between `<<<` and `>>>`, split at commas, and where the `>>>` is."""
    pieces: list[str] = []
    begin = at
    while at < len(text):
        skipped = _skip(text, at)
        if skipped > at:
            at = skipped
        elif text.startswith(">>>", at) and text[_skip_blank(text, at + 3) :][:1] == "(":
            return [*pieces, text[begin:at]], at
        elif text[at] in _OPEN:
            closing = _matching(text, at)
            if closing < 0:
                return None
            at = closing + 1
        elif text[at] in _CLOSE or text[at] == ";":
            return None
        elif text[at] == "<" and (end := _template_end(text, at)) is not None:
            at = end + 1
        elif text[at] == ",":
            pieces.append(text[begin:at])
            at += 1
            begin = at
        else:
            at += 1
    return None


def _template_end(text: str, at: int) -> int | None:
    """The `>` that closes template arguments which `<` at `at` opens; None: it is a comparison."""
    if at == 0 or not _is_word(text[at - 1]):
        return None
    depth = 0
    for i in range(at, len(text)):
        c = text[i]
        if c == "<":
            depth += 1
        elif c == ">":
            depth -= 1
            if depth == 0:
                return i if text[_skip_blank(text, i + 1) :][:1] in ("(", "{", ":") else None
        elif not (_is_word(c) or c.isspace() or c in ":,*&"):
            return None
    return None


def _matching(text: str, at: int) -> int:
    """The bracket that closes the one at `at`; -1: none, or `at` is no bracket."""
    if at >= len(text) or text[at] not in _OPEN:
        return -1
    stack: list[str] = []
    while at < len(text):
        skipped = _skip(text, at)
        if skipped > at:
            at = skipped
            continue
        if text[at] in _OPEN:
            stack.append(_OPEN[text[at]])
        elif text[at] in _CLOSE:
            if stack.pop() != text[at]:
                return -1
            if not stack:
                return at
        at += 1
    return -1


def _opening(text: str, at: int, floor: int, left: str, right: str) -> int | None:
    """The bracket that opens the one at `at`, looking back; literals are not expected in there."""
    depth = 0
    for i in range(at, floor - 1, -1):
        if text[i] == right and not (right == ">" and i > floor and text[i - 1] == "-"):
            depth += 1
        elif text[i] == left:
            depth -= 1
            if depth == 0:
                return i
        elif text[i] in ";{}":
            return None
    return None


def _skip(text: str, at: int) -> int:
    """The end of the comment or literal that begins at `at`; `at` itself where none does."""
    if text.startswith("//", at):
        return _line_end(text, at)
    if text.startswith("/*", at):
        return _after(text, "*/", at + 2)
    if text[at] == '"':
        word = at
        while word > 0 and _is_word(text[word - 1]):
            word -= 1
        if text[word:at] in _PREFIXES:
            opening = text.find("(", at)
            return len(text) if opening < 0 else _after(text, ")" + text[at + 1 : opening] + '"', opening)
        return _quoted(text, at)
    if text[at] == "'" and not (at > 0 and text[at - 1].isalnum()):  # else: 1'000
        return _quoted(text, at)
    return at


def _quoted(text: str, at: int) -> int:
    quote = text[at]
    i = at + 1
    while i < len(text) and text[i] != quote and text[i] != "\n":
        i += 2 if text[i] == "\\" else 1
    return min(i + 1, len(text))


def _line_end(text: str, at: int) -> int:
    """The end of a `//` comment; a backslash before the line's end continues it."""
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if text[end - 1] != "\\":
            return end
        at = end + 1


def _after(text: str, what: str, at: int) -> int:
    found = text.find(what, at)
    return len(text) if found < 0 else found + len(what)


def _skip_blank(text: str, at: int) -> int:
    """The next place that is neither blank nor comment."""
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith(("//", "/*"), at):
            at = _skip(text, at)
        else:
            break
    return at


def _skip_blank_back(text: str, at: int, floor: int) -> int:
    while at > floor and text[at - 1].isspace():
        at -= 1
    return at


def _is_word(c: str) -> bool:
    return c.isalnum() or c == "_"


def _word_end(text: str, at: int) -> int:
    while at < len(text) and _is_word(text[at]):
        at += 1
    return at
