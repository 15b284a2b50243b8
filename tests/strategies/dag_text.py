"""Random `.dag` programs: as trees, as mutilated texts, and as soups of words. For Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from dagc.ir.enums import CodeLang, Mode, OpKind, Place, Role
from dagc.lang import ast
from dagc.lang.syntax import FREE, RESERVED, scan

# Names: short, so that they meet; words that are keywords elsewhere are names too.
NAMES = st.sampled_from(["a", "b", "n", "x_l", "y", "rows", "A1", "_t", "mpi_host", "inout_", *sorted(FREE)])
TYPES = st.sampled_from(["i32", "i64", "f32", "f64", "bool", "str", "type", "real"])
STRINGS = st.text(st.characters(exclude_characters='"\n', exclude_categories=["Cs"]), max_size=8)
CODES = st.text(max_size=30).filter(lambda t: '"""' not in t and not t.endswith('"') and "\r\n" not in t)


def _tuples(items: st.SearchStrategy[object], at_least: int = 0, at_most: int = 3) -> st.SearchStrategy[tuple]:
    return st.lists(items, min_size=at_least, max_size=at_most).map(tuple)


# ---- expressions ------------------------------------------------------------------------

LITERALS = st.one_of(
    st.integers(0, 2**63 - 1).map(ast.Literal),
    st.floats(0, allow_nan=False, allow_infinity=False).map(ast.Literal),
    st.booleans().map(ast.Literal),
    STRINGS.map(ast.Literal),
)


def _extend(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    """One level more around `inner`."""
    return st.one_of(
        refs(inner),
        st.builds(ast.Call, refs(inner), _tuples(st.one_of(inner, st.builds(ast.Named, NAMES, inner)))),
        st.builds(ast.Unary, st.sampled_from(ast.UnaryOp), inner),
        st.builds(ast.Binary, st.sampled_from(ast.BinaryOp), inner, inner),
        st.builds(ast.Conditional, inner, inner, inner),
        st.builds(ast.ListExpr, _tuples(inner, 1)),
    )


def refs(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Ref]:
    """`a`, `a.send`, `a[i, *, 0..n]`, ..."""
    index = st.one_of(inner, st.builds(ast.Range, inner, inner), st.just(ast.Every()))
    member = st.builds(ast.Member, st.one_of(NAMES, st.sampled_from(["send", "recv"])))
    return st.builds(ast.Ref, NAMES, _tuples(st.one_of(member, st.builds(ast.Index, _tuples(index, 1, 2))), 0, 2))


EXPRS = st.recursive(st.one_of(LITERALS, NAMES.map(ast.Ref)), _extend, max_leaves=6)
REFS = refs(EXPRS)
CALLS = st.builds(ast.Call, REFS, _tuples(st.one_of(EXPRS, st.builds(ast.Named, NAMES, EXPRS))))
RANGES = st.one_of(EXPRS, st.builds(ast.Range, EXPRS, EXPRS))
DECL_NAMES = st.builds(ast.DeclName, NAMES, _tuples(EXPRS, 0, 2))
DIMS = _tuples(st.one_of(EXPRS, st.just(ast.Every())), 1, 2)

# ---- items --------------------------------------------------------------------------------

QUALIFIED = st.lists(NAMES, min_size=1, max_size=3).map("::".join)
COMPARISONS = [op for op in ast.BinaryOp if op.value in ("==", "!=", "<", "<=", ">", ">=")]
UNTILS = st.builds(ast.Until, REFS) | st.builds(ast.Until, REFS, st.sampled_from(COMPARISONS), REFS)
CODE = st.one_of(
    st.builds(ast.Code, st.sampled_from(CodeLang), text=CODES),
    st.builds(
        ast.Code,
        st.sampled_from(CodeLang),
        function=QUALIFIED,
        file=STRINGS,
        arguments=_tuples(REFS, 0, 2),
    ),
    st.builds(ast.Code, st.sampled_from(CodeLang), file=STRINGS),
)
LET = st.builds(ast.Let, DECL_NAMES, EXPRS)
TUNE = st.builds(ast.Tune, DECL_NAMES, RANGES)
REQUIRE = st.builds(ast.Require, EXPRS)
FEATURE = st.builds(ast.Feature, NAMES, st.one_of(EXPRS, CODE), st.none() | EXPRS)
SELECT = st.builds(ast.Select, _tuples(NAMES, 1), NAMES, _tuples(EXPRS))
ARRAY = st.builds(
    ast.Array,
    _tuples(DECL_NAMES, 1),
    TYPES,
    DIMS,
    st.none() | st.sampled_from(Place),
    st.none() | st.sampled_from(Role),
)
FORMAL = st.builds(
    ast.Formal,
    _tuples(NAMES.map(ast.DeclName), 1, 2),
    TYPES,
    st.none() | st.sampled_from(Mode),
    st.none() | DIMS,
)
LAUNCH = st.builds(ast.Launch, _tuples(EXPRS, 1), _tuples(EXPRS, 1), st.none() | EXPRS)
PREPARE = st.builds(ast.Prepare, CODE)
FORMS = st.builds(ast.Forms, _tuples(NAMES, 1)) | st.builds(ast.Forms, NAMES.map(lambda name: (name,)), st.just(True))
FUSE = st.builds(ast.Fuse, _tuples(NAMES, 1)) | st.builds(ast.Fuse, NAMES.map(lambda name: (name,)), st.just(True))
LINK = st.builds(ast.Link, _tuples(STRINGS, 1))
IMPL = st.builds(
    ast.Impl,
    st.sampled_from([OpKind.GPU, OpKind.CPU]),
    st.none() | NAMES,
    _tuples(st.one_of(LET, TUNE, REQUIRE, FORMS, ARRAY, LINK, LAUNCH, PREPARE, CODE)),
)
KERNEL = st.builds(
    ast.Kernel,
    NAMES,
    _tuples(FORMAL),
    _tuples(st.one_of(LET, TUNE, REQUIRE, FEATURE, SELECT, FORMS, IMPL)),
)
MESSAGE = st.builds(
    ast.Message, st.none() | REFS, REFS, EXPRS, st.none() | REFS, REFS, EXPRS, st.none() | REFS
)  # fmt: skip


@st.composite
def _edges(draw: st.DrawFn) -> ast.Edge:
    groups = draw(_tuples(_tuples(REFS, 1, 2), 2, 3))
    arrows = [draw(st.sampled_from(ast.Arrow)) for _ in groups[1:]]
    return ast.Edge(groups, tuple(arrows))


_FLAT = st.one_of(
    st.builds(ast.Param, _tuples(NAMES.map(ast.DeclName), 1, 2), TYPES, EXPRS, st.none() | RANGES),
    st.builds(ast.EnumDecl, NAMES, _tuples(NAMES, 1)),
    st.builds(ast.Scalar, _tuples(DECL_NAMES, 1), TYPES),
    st.builds(ast.Part, DECL_NAMES, REFS),
    st.builds(ast.Op, REFS, st.sampled_from(OpKind), CALLS, st.none() | EXPRS),
    st.builds(ast.Communicator, DECL_NAMES, CALLS),
    st.builds(ast.Collective, REFS, CALLS, st.none() | REFS),
    st.builds(ast.Setup, STRINGS, CALLS),
    st.builds(ast.Verify, REFS, CALLS, EXPRS, of=st.sampled_from(("", "sum"))),
    st.builds(ast.Include, STRINGS),
    st.just(ast.EdgesExplicit()),
    FUSE,
    _edges(),
    *(LET, TUNE, REQUIRE, FEATURE, SELECT, ARRAY, CODE, KERNEL, MESSAGE),
)


def _around(inner: st.SearchStrategy[ast.Item]) -> st.SearchStrategy[ast.Item]:
    """Items with a block of items."""
    block = _tuples(inner)
    return st.one_of(
        st.builds(ast.For, _tuples(st.builds(ast.Binding, NAMES, RANGES), 1, 2), block),
        st.builds(ast.If, EXPRS, block, st.none() | block),
        st.builds(ast.Exchange, REFS, st.none() | REFS, st.none() | EXPRS, block),
        st.builds(ast.SubDag, NAMES, _tuples(FORMAL), block),
        st.builds(ast.MainDag, block),
        st.builds(ast.MainDag, block, EXPRS, st.none() | UNTILS),
    )


ITEMS = st.recursive(_FLAT, _around, max_leaves=4)
MODULES = st.builds(ast.Module, st.none() | NAMES, _tuples(ITEMS, 0, 4))
"""Trees that the parser could have made, of any shape the grammar allows; most mean nothing."""

# ---- texts ----------------------------------------------------------------------------------

WORDS = [
    *sorted(RESERVED | FREE),
    *"{}()[],:;=~?<>+-*/%!.",
    *["<=", ">=", "==", "!=", "&&", "||", "->", ".."],
    *["a", "n_send", "x", "0", "42", "1_000", "0.5", "1e-5", "1e999", "9" * 30, "2x", "0x1f"],
    *[
        '"text"',
        '"""code"""',
        '"',
        '"""',
        "// words\n",
        "/* words */",
        "/*",
        "#",
        "'",
        "\t",
        "\r\n",
        "\0",
        "\ufeff",
        "é",
    ],
]
SEPARATORS = st.sampled_from([" ", " ", "\n", ""])


@st.composite
def soups(draw: st.DrawFn) -> str:
    """Words of the language in any order."""
    words = draw(st.lists(st.sampled_from(WORDS), max_size=40))
    return "".join(word + draw(SEPARATORS) for word in words)


@st.composite
def mutants(draw: st.DrawFn, texts: Sequence[str]) -> str:
    """One of `texts` with a few words removed, exchanged, doubled or replaced, or cut off anywhere."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        tokens = scan(text)
        if not tokens:
            break
        one = tokens[draw(st.integers(0, len(tokens) - 1))]
        match draw(st.sampled_from(["remove", "swap", "double", "replace", "insert", "cut", "character"])):
            case "remove":
                text = text[: one.start] + text[one.end :]
            case "swap":
                other = tokens[draw(st.integers(0, len(tokens) - 1))]
                one, other = sorted((one, other), key=lambda t: t.start)
                if one is not other:
                    middle = text[one.end : other.start]
                    text = text[: one.start] + other.text + middle + one.text + text[other.end :]
            case "double":
                text = text[: one.end] + " " + text[one.start :]
            case "replace":
                text = text[: one.start] + draw(st.sampled_from(WORDS)) + text[one.end :]
            case "insert":
                text = text[: one.start] + draw(st.sampled_from(WORDS)) + " " + text[one.start :]
            case "cut":
                text = text[: draw(st.integers(0, len(text)))]
            case "character":
                at = draw(st.integers(0, len(text)))
                text = text[:at] + draw(st.characters(exclude_categories=["Cs"])) + text[at:]
    return text


@st.composite
def loosened(draw: st.DrawFn, texts: Sequence[str]) -> str:
    """One of `texts` with other blanks, line ends and comments between its words: the same program."""
    text = draw(st.sampled_from(texts))
    tokens = scan(text)
    start = draw(st.integers(0, max(0, len(tokens) - 12)))
    out, last = [], 0
    for i, token in enumerate(tokens):
        between = text[last : token.start]
        if start <= i < start + 12:
            filler = st.sampled_from(["", " ", "   ", "\n", "\n\n\n", "\t", " // why\n", " /* why */ ", "\r\n"])
            between = between if between == "" or "\n" in between else draw(filler.filter(bool))
            between += draw(filler) if between else ""
        out += [between, token.text]
        last = token.end
    return "".join([*out, text[last:]])
