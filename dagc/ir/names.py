"""`mangle`: the one way from a name of a program to a name outside of it, of a file or an identifier.

Different names have different results, whatever else a program declares: a data directory and the header of a library
stay valid when a program is edited. Identifiers are the same in C++, CUDA, C, Python and Fortran, except where these
have a word for themselves (`dagc.emit.render.Names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

# A name as the language writes it, indices resolved.
_DISPLAY = re.compile(r"\w+(\[\w+(,\w+)*\])?(\.\w+(\[\w+(,\w+)*\])?)*", re.ASCII)
_GAP = re.compile(r"[^A-Za-z0-9]+")
_LETTERS = {"_": "u", "[": "i", ",": "i", ".": "d"}
_CODE = re.compile(r"[uidtx][uidtxUIDTX0-9]*")


def mangle(display: str) -> str:
    """An identifier, unchanged if `display` is one that does not end with `_`: `post_send`, `n`.

    Else words joined by `_`, with a `_` at the end: `pack_x_lo_` for `pack[x,lo]`, `u_0_1_` for `u[0,1]`. Where a `_`
    may also stand for something else than an index, the last word says what each stands for, from the right: an index
    (i), a dot (d), an underscore (u; left out at the beginning), one at the end (t), another character (x and its
    number); capitals follow letters of the same `_`. `u_0_1_i_` for `u_0[1]`, `A_to_device_du_` for `A.to_device`.
    """
    if re.fullmatch(r"([A-Za-z_]\w*)?", display, re.ASCII) and not display.endswith("_"):
        return display
    known = _DISPLAY.fullmatch(display) is not None
    text = display.replace("]", "") if known else display  # indices end where a dot or the text does
    gaps = ["".join(_letters(gap, known)) for gap in _GAP.findall(text)]
    words = _GAP.split(text)
    if not words[-1]:
        del words[-1]
        gaps[-1] = "t" if gaps[-1] == "u" else f"t{gaps[-1].upper()}"
    body = "_".join(words)
    if all(gap == "i" for gap in gaps) and gaps and not _CODE.fullmatch(words[-1]):
        return f"{body}_"
    code = "".join(dropwhile("u".__eq__, gaps))
    return f"{body}_{code or 'u'}_"


def _letters(gap: str, known: bool) -> Iterator[str]:
    """What one `_` stands for."""
    for k, c in enumerate(gap):
        letter = _LETTERS[c] if c == "_" or (known and c in _LETTERS) else f"x{ord(c)}"
        yield letter if k == 0 else letter.upper()


def last_name(display: str) -> str:
    """`pack[x,lo]` of `mv[0].pack[x,lo]`."""
    return re.split(r"\.(?![^\[]*\])", display)[-1]


def common_name(displays: Sequence[str], base: str) -> str:
    """A name for what belongs to several names, of which only the last parts differ: that of all but the last parts,
    `base`, and the indices that all have in one place. `pack[x]` for `pack[x,lo]` and `pack[x,hi]`."""
    first = last_name(displays[0])
    indices = [last_name(each).partition("[")[2].removesuffix("]").split(",") for each in displays]
    common = [same[0] for same in zip(*indices, strict=False) if same[0] and len(set(same)) == 1]
    outer = displays[0][: len(displays[0]) - len(first)]
    return f"{outer}{base}" + (f"[{','.join(common)}]" if common else "")


def set_apart(name: str) -> str:
    """Another identifier for one that means something where it goes; `mangle` gives it to no name."""
    return f"{name}_u_" if "_" in name else f"{name}_"


def data_file(name: str) -> str:
    """The file of a value or an array in the directory of a rank."""
    return f"{mangle(name)}.npy"


def alike(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ only in case: one file where a file system ignores it."""
    first: dict[str, str] = {}
    return [(first[n.lower()], n) for n in names if first.setdefault(n.lower(), n) != n]
