"""C and CUDA text as preprocessing tokens: names and directives, without comments and literals; its macros, expanded;
and the words of C++ and CUDA, with the names that headers keep in the global namespace.

Lexical on purpose: directives precede the grammar, and names are wanted of the bodies of macros and of text that does
not parse. Questions of syntax are answered by `dagc.cuda.text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
# Without its end, a literal goes on to the end of the line, a raw one to the end of the text (as in clang): if it were
# then read as other tokens, each of many quotes would be looked for again, in a time quadratic in the text.
STRING = (
    r'(?:\b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)'
    r'|(?:\b(?:u8|[uUL]))?"(?:\\.|[^"\\\n])*+"?)'
)
CHARACTER = r"(?:\b(?:u8|[uUL]))?'(?:\\.|[^'\\\n])*+'?"
_TOKEN = re.compile(
    rf"(?P<comment>{COMMENT})|(?P<string>{STRING})|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)|{CHARACTER}"
    r"|(?P<pragma>#[ \t]*pragma[ \t]+\w+)|(?:(?P<access>\.|->|::)\s*)?\b(?P<name>[A-Za-z_]\w*)|(?P<other>\S)",
    re.DOTALL,
)
_BLANK = re.compile(rf"{COMMENT}|(?P<string>{STRING}|{CHARACTER})", re.DOTALL)
_DIRECTIVE = re.compile(
    rf"^[ \t]*#[ \t]*(?P<name>\w+)(?P<rest>(?:{COMMENT}|\\\r?\n|[^\n])*)|{COMMENT}|{STRING}|{CHARACTER}",
    re.DOTALL | re.MULTILINE,
)
_PUNCTUATOR = r"<=>|<<=|>>=|->\*|\.\.\.|##|::|->|\.\*|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\S"
_LEXEME = re.compile(
    rf"(?P<blank>(?:{COMMENT}|\\\r?\n|[^\S\n])+)|(?P<newline>\n)|(?P<token>{STRING}|{CHARACTER}"
    rf"|\.?\d(?:[eEpP][+-]|'?[\w.])*|\w+|{_PUNCTUATOR})",
    re.DOTALL,
)
_INCLUDED = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')


class Name(NamedTuple):
    """A name in a text. `start`: its offset in characters. `member`: it follows `.`, `->` or `::`. `before`: the name
    directly before it, "" if something else is: `long` of `x` in `long x`."""

    text: str
    start: int
    member: bool
    before: str


class Directive(NamedTuple):
    """A line of the preprocessor, also one that a condition excludes. `rest`: what follows its name, without comments
    and continuations. `line`: from 0."""

    name: str
    rest: str
    line: int


def names_in(text: str) -> Iterator[Name]:
    """All names outside of comments, strings and characters, without the first word of a pragma. Those in the string of
    a `_Pragma` count."""
    before, pragma = "", 0  # 2: `_Pragma` and `(` came directly before
    for match in _TOKEN.finditer(text):
        name = match["name"]
        if name is not None:
            yield Name(name, match.start("name"), match["access"] is not None, before)
            before, pragma = name, int(name == "_Pragma")
        elif match["string"] is not None and pragma == 2:
            quoted, head = match["string"].strip("uUL8").strip('"'), "#pragma "
            shift = match.start() + match[0].index(quoted) - len(head)
            yield from (n._replace(start=n.start + shift) for n in names_in(head + quoted))
            before, pragma = "", 0
        elif match["comment"] is None:
            before, pragma = "", pragma + 1 if pragma and match["other"] == "(" else 0


@lru_cache(maxsize=256)
def tokens_of(text: str) -> str:
    """The tokens of a text, separated by spaces; equal for texts that differ in comments and layout only.

    Directives have a line each, on which blanks count: `#define f (x)` differs from `#define f(x)`.
    """
    out: list[str] = []
    at_start, directive, blank = True, False, False
    for match in _LEXEME.finditer(text):
        token = match["token"]
        if match["newline"] is not None:
            out += ["\n"] * directive
            at_start, directive = True, False
        elif token is not None:
            if at_start and token == "#":
                out.append("\n#")
                directive = True
            else:
                out.append(token if directive and not blank else f" {token}")
            at_start = False
        blank = token is None
    return "".join(out).strip()


def directives(text: str) -> Iterator[Directive]:
    """The lines of the preprocessor, without those in comments and strings."""
    line, counted_to = 0, 0
    for match in _DIRECTIVE.finditer(text):
        if match["name"] is not None:
            line += text.count("\n", counted_to, match.start())
            counted_to = match.start()
            rest = re.sub(r"\\\r?\n", " ", match["rest"])
            yield Directive(match["name"], _BLANK.sub(lambda part: part["string"] or " ", rest).strip(), line)


def includes(text: str) -> Iterator[tuple[str, bool]]:
    """The files that a text includes, and whether in quotes; not those that a macro names."""
    for directive in directives(text):
        match = _INCLUDED.match(directive.rest) if directive.name == "include" else None
        if match is not None:
            yield match[1] or match[2], match[1] is not None


def uses_openmp(text: str) -> bool:
    """Whether a text has a directive of OpenMP, or includes its header."""
    pragmas = (d.rest.split() for d in directives(text) if d.name == "pragma")
    return any(words[:1] == ["omp"] for words in pragmas) or ("omp.h", False) in includes(text)


_INDICES = frozenset(("threadIdx", "blockIdx"))
_PLACES = frozenset(("thread_rank", "thread_index", "block_rank", "asm"))  # also give the index of the thread


def indices_read(text: str) -> frozenset[str] | None:
    """The components of the thread's and the block's index that a kernel's text names, such as `threadIdx.y`. None if
    it may read any of them: it uses a group, has assembly, or takes an index as a whole."""
    names = list(names_in(text))
    parts = [f"{n.before}.{n.text}" for n in names if n.member and n.before in _INDICES and n.text in ("x", "y", "z")]
    whole = sum(n.text in _INDICES for n in names) > len(parts)
    return None if whole or any(n.text in _PLACES for n in names) else frozenset(parts)


def may_find_thread(text: str) -> bool:
    """Whether functions of a text, or of a file that it includes in quotes, may read the index of the calling
    thread."""
    return any(quoted for _, quoted in includes(text)) or any(n.text in _INDICES | _PLACES for n in names_in(text))


# Words after which a name is used; after any other word it is declared: `long x`. Also `__shared__` and its like.
_BEFORE_USE = frozenset(
    """return case else do throw new delete sizeof and or not goto defined const volatile static constexpr inline
    extern typename register __shared__ __device__ __host__ __global__ __constant__ __managed__""".split()
)


@lru_cache(maxsize=256)
def words_of(text: str) -> frozenset[str]:
    """The texts of all names in it."""
    return frozenset(name.text for name in names_in(text))


@lru_cache(maxsize=256)
def names_used(text: str) -> frozenset[str]:
    """Names that the text uses and does not declare. Members (`a.x`, `a::x`) are not names here."""
    used: set[str] = set()
    declared: set[str] = set()
    for name in names_in(text):
        if not name.member:
            (declared if name.before and name.before not in _BEFORE_USE else used).add(name.text)
    return frozenset(used - declared)


# ---- macros ----------------------------------------------------------------------------------------
# Expanded as the preprocessor does, so that the syntax tree shows what they hide. Conditions are not evaluated: what
# any branch defines or contains counts. Of several definitions of a macro the longest is used.

LARGEST_EXPANDED = 1 << 22  # characters of an expanded text; a larger one stays as it is

_DEFINED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\((?P<formals>[^()]*)\))?[ \t]*(?P<body>.*)", re.DOTALL)
_MACRO_TOKEN = re.compile(
    rf"(?P<aside>{COMMENT}|{STRING}|{CHARACTER}|\.?\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|\s+|(?P<other>.)", re.DOTALL
)
_DIRECTIVE_LINE = re.compile(rf"^[ \t]*#(?:{COMMENT}|\\\r?\n|[^\n])*", re.DOTALL | re.MULTILINE)
_BRANCH = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(\w*)")


@dataclass(frozen=True, slots=True)
class Macro:
    """`formals` is None for a macro without parentheses."""

    formals: tuple[str, ...] | None
    body: str


def macros_of(texts: Iterable[str]) -> dict[str, Macro]:
    """The macros that the texts define, by name."""
    out: dict[str, Macro] = {}
    for text in texts:
        for line in directives(text) if "define" in text else ():
            match = _DEFINED.match(line.rest) if line.name == "define" else None
            if match is not None:
                words = match["formals"]
                formals = None if words is None else tuple(w.strip() for w in words.split(",") if w.strip())
                name, body = match["name"], match["body"]
                if name not in out or len(body) > len(out[name].body):
                    out[name] = Macro(formals, body)
    return out


def expanded(text: str, macros: Mapping[str, Macro]) -> str:
    """The text with its macros expanded and without directives; every line keeps its number."""
    text = _without_directives(text)
    try:
        return _Expansion(macros).of(text, frozenset())
    except (_TooLarge, RecursionError):
        return text


def _without_directives(text: str) -> str:
    """A text without lines of the preprocessor, and without later branches of a condition that would leave a brace
    open."""
    out: list[str] = []
    done, kept = 0, [True]  # for each open condition, whether its branch is kept
    for match in _DIRECTIVE_LINE.finditer(text):
        branch = _BRANCH.match(match.group())
        word, rest = (branch[1], branch[2]) if branch is not None else ("", "")
        out += [_lines_of(text[done : match.start()], all(kept)), "\n" * match.group().count("\n")]
        done = match.end()
        if word.startswith("if"):
            kept.append((word, rest) != ("if", "0"))
        elif word in ("else", "elif") and len(kept) > 1:
            kept[-1] = _closed(text, done)
        elif word == "endif" and len(kept) > 1:
            kept.pop()
    return "".join([*out, _lines_of(text[done:], all(kept))])


def _lines_of(text: str, kept: bool) -> str:
    return text if kept else "\n" * text.count("\n")


def _closed(text: str, start: int) -> bool:
    """Whether the branch from here to the next directive opens and closes as many braces."""
    following = _DIRECTIVE_LINE.search(text, start)
    branch = text[start : following.start() if following is not None else len(text)]
    return branch.count("{") == branch.count("}")


class _TooLarge(Exception):
    """The expansion is larger than LARGEST_EXPANDED."""


class _Expansion:
    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self.macros, self.size = macros, 0

    def of(self, text: str, hidden: frozenset[str]) -> str:
        """A text expanded; `hidden`: the macros whose expansion it is part of."""
        out: list[str] = []
        done = at = 0
        while (match := _MACRO_TOKEN.match(text, at)) is not None:
            at = match.end()
            macro = self.macros.get(match["name"]) if match["name"] and match["name"] not in hidden else None
            if macro is None:
                continue
            arguments: list[str] = []
            stop = at
            if macro.formals is not None:
                called = _arguments(text, at)
                if called is None:
                    continue
                arguments, stop = called
            lines = text.count("\n", match.start(), stop)
            body = self._replaced(macro, arguments, hidden)
            new = self.of(body, hidden | {match["name"]}).replace("\n", " ")
            self.size += len(new)
            if self.size > LARGEST_EXPANDED:
                raise _TooLarge
            out += [text[done : match.start()], " ", new, " ", "\n" * lines]
            done = at = stop
        return "".join([*out, text[done:]])

    def _replaced(self, macro: Macro, arguments: list[str], hidden: frozenset[str]) -> str:
        """The body with the arguments in the place of its formals."""
        formals = [f.removesuffix("...").strip() or "__VA_ARGS__" for f in macro.formals or ()]
        if macro.formals and macro.formals[-1].endswith("..."):
            arguments = [*arguments[: len(formals) - 1], ",".join(arguments[len(formals) - 1 :])]
        given = dict(zip(formals, arguments, strict=False))
        body = re.sub(
            r"(\w+)\s*##\s*(?=(\w+))", lambda m: f"{given.get(m[1], m[1]).strip()}\0", macro.body
        )  # `a ## b` joins what they stand for
        out, done, pasted = [], 0, False
        for match in _MACRO_TOKEN.finditer(body):
            name = match["name"]
            before = body[done : match.start()]
            pasted = before.endswith("\0")
            if name in given:
                quoted = before.rstrip().endswith("#")
                value = given[name].strip() if pasted else self.of(given[name], hidden)
                before = before.rstrip().removesuffix("#") if quoted else before
                out += [before, '""' if quoted else value]
                done = match.end()
        return "".join([*out, body[done:]]).replace("\0", "")


def _arguments(text: str, at: int) -> tuple[list[str], int] | None:
    """The arguments of a macro that is called here, and where the call ends; None if it is not called."""
    out: list[str] = []
    depth, begin = 0, at
    while (match := _MACRO_TOKEN.match(text, at)) is not None:
        at = match.end()
        token = match["other"]
        if depth == 0 and token != "(" and (token or match["name"] or (match["aside"] and text[match.start()] != "/")):
            return None
        if token in ("(", "[", "{"):
            depth += 1
            begin = at if depth == 1 else begin
        elif token in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return [*out, text[begin : match.start()]], at
        elif token == "," and depth == 1:
            out.append(text[begin : match.start()])
            begin = at
    return None


# ---- words -----------------------------------------------------------------------------------------


# ---- keywords ----


# The keywords of C++20, and what compilers add without an underscore: `typeof`, and macros of g++ in GNU modes.
KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile
    wchar_t while xor xor_eq NULL linux unix""".split()
)
# Defined by CUDA in every kernel.
VARIABLES = frozenset("threadIdx blockIdx blockDim gridDim warpSize".split())
# Reserved by the standard for the compiler and its library: `_Complex`, `__int128`, `__restrict`, `__global__`,
# `_Pragma`, builtin macros such as `__FILE__`. No list of them is complete, so no name of this class is allowed.
_RESERVED = re.compile(r"__|_[A-Z]")


def is_reserved(name: str) -> bool:
    """Whether C++ reserves this name for the implementation in every scope (C++17, 5.10 [lex.name])."""
    return _RESERVED.match(name) is not None


# ---- names of headers ----


FUNCTIONS = frozenset(
    """BUS_ADRALN BUS_ADRERR BUS_MCEERR_AO BUS_MCEERR_AR BUS_OBJERR CLD_CONTINUED CLD_DUMPED CLD_EXITED CLD_KILLED
    CLD_STOPPED CLD_TRAPPED CPU_ALLOC CPU_ALLOC_SIZE CPU_AND CPU_AND_S CPU_CLR CPU_CLR_S CPU_COUNT CPU_COUNT_S
    CPU_EQUAL CPU_EQUAL_S CPU_FREE CPU_ISSET CPU_ISSET_S CPU_OR CPU_OR_S CPU_SET CPU_SET_S CPU_XOR CPU_XOR_S
    CPU_ZERO CPU_ZERO_S CUuuid DIR DT_BLK DT_CHR DT_DIR DT_FIFO DT_LNK DT_REG DT_SOCK DT_UNKNOWN DT_WHT Dl_info
    Dl_serinfo Dl_serpath FD_CLR FD_ISSET FD_SET FD_ZERO FILE FPE_CONDTRAP FPE_FLTDIV FPE_FLTINV FPE_FLTOVF
    FPE_FLTRES FPE_FLTSUB FPE_FLTUND FPE_FLTUNK FPE_INTDIV FPE_INTOVF IF_DEVICE_OR_CUDACC ILL_BADIADDR ILL_BADSTK
    ILL_COPROC ILL_ILLADR ILL_ILLOPC ILL_ILLOPN ILL_ILLTRP ILL_PRVOPC ILL_PRVREG INT16_C INT32_C INT64_C INT8_C
    INTMAX_C Lmid_t MAJOR_VERSION MINOR_VERSION PATCH_LEVEL POLL_ERR POLL_HUP POLL_IN POLL_MSG POLL_OUT POLL_PRI
    REG_CR2 REG_CSGSFS REG_EFL REG_ERR REG_OLDMASK REG_R10 REG_R11 REG_R12 REG_R13 REG_R14 REG_R15 REG_R8 REG_R9
    REG_RAX REG_RBP REG_RBX REG_RCX REG_RDI REG_RDX REG_RIP REG_RSI REG_RSP REG_TRAPNO RTLD_DI_CONFIGADDR
    RTLD_DI_LINKMAP RTLD_DI_LMID RTLD_DI_MAX RTLD_DI_ORIGIN RTLD_DI_PHDR RTLD_DI_PROFILENAME RTLD_DI_PROFILEOUT
    RTLD_DI_SERINFO RTLD_DI_SERINFOSIZE RTLD_DI_TLS_DATA RTLD_DI_TLS_MODID RTLD_DL_LINKMAP RTLD_DL_SYMENT
    SEGV_ACCADI SEGV_ACCERR SEGV_ADIDERR SEGV_ADIPERR SEGV_BNDERR SEGV_CPERR SEGV_MAPERR SEGV_MTEAERR SEGV_MTESERR
    SEGV_PKUERR SIGEV_NONE SIGEV_SIGNAL SIGEV_THREAD SIGEV_THREAD_ID SI_ASYNCIO SI_ASYNCNL SI_DETHREAD SI_KERNEL
    SI_MESGQ SI_QUEUE SI_SIGIO SI_TIMER SI_TKILL SI_USER SS_DISABLE SS_ONSTACK S_ISBLK S_ISCHR S_ISDIR S_ISFIFO
    S_ISLNK S_ISREG S_ISSOCK S_TYPEISMQ S_TYPEISSEM S_TYPEISSHM TRAP_BRANCH TRAP_BRKPT TRAP_HWBKPT TRAP_TRACE
    TRAP_UNK UINT16_C UINT32_C UINT64_C UINT8_C UINTMAX_C WARP_SZ WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED
    WIFSTOPPED WSTOPSIG WTERMSIG a64l abort abs access acct acos acosh alarm aligned_alloc all alloca alphasort
    alphasort64 any arc4random arc4random_buf arc4random_uniform asctime asin asinh asprintf assert assert_perror
    at_quick_exit atan atan2 atanh atexit atof atoi atol ballot basename bcmp bcopy be16toh be32toh be64toh
    blkcnt64_t blkcnt_t blksize_t brk bsearch btowc bzero caddr_t calloc canonicalize canonicalize_file_name cbrt
    ceil char16_t char32_t chdir chmod chown chroot clearenv clearerr clock clock64 clockid_t clone close
    close_range closedir closefrom comparison_fn_t confstr connect const_cast cookie_close_function_t
    cookie_io_functions_t cookie_read_function_t cookie_seek_function_t cookie_write_function_t copy_file_range
    copysign cos cosh cospi cpu_set_t crypt ctermid ctime cuserid cyl_bessel_i0 cyl_bessel_i1 dadd daddl daddr_t
    daemon dagc daylight ddivl dev_t dfmal difftime dim3 dirent dirent64 dirfd div div_t dladdr dladdr1 dlclose
    dlerror dlinfo dlmopen dlopen dlsym dlvsym dmul dmull double2int double2ll double2uint double2ull double_t
    dprintf drand48 drem dsqrtl dsub dsubl dup dup2 dup3 duplocale dysize eaccess ecvt endusershell environ erand48
    erf erfc erfcinv erfcx erfinv error_t euidaccess execl execle execlp execv execve execveat execvp execvpe exit
    exp exp10 exp2 explicit_bzero expm1 fabs faccessat fadd fchdir fchmod fchmodat fchown fchownat fclose fcloseall
    fcvt fd_mask fd_set fdatasync fdim fdiv fdivide fdopen fdopendir feof ferror fexecve fflush ffma ffs ffsll fgetc
    fgetpos fgetpos64 fgets fgetwc fgetws fileno finite float2double float_t flockfile floor fma fmax fmaximum
    fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag fmemopen fmin fminimum fminimum_mag fminimum_mag_num
    fminimum_num fminmag fmod fmul fopen fopen64 fopencookie fork fpathconf fpclassify fpos64_t fpos_t fpregset_t
    fprintf fputc fputs fputwc fputws fread free freelocale freopen freopen64 frexp fromfp fromfpx fsblkcnt64_t
    fsblkcnt_t fscanf fseek fseeko fseeko64 fsetpos fsetpos64 fsfilcnt64_t fsfilcnt_t fsid_t fsqrt fstat fstat64
    fstatat fstatat64 fsub fsync ftell ftello ftello64 ftruncate ftruncate64 ftrylockfile funlockfile futimens fwide
    fwprintf fwrite fwscanf gamma gcvt get_current_dir_name getc getchar getcpu getcwd getdate getdate_err getdelim
    getdents64 getdirentries getdirentries64 getdomainname getdtablesize getegid getentropy getenv geteuid getgid
    getgroups gethostid gethostname getline getloadavg getlogin getopt getpagesize getpass getpayload getpgid
    getpgrp getpid getppid getpt getresgid getresuid getsid getsubopt gettid getuid getumask getusershell getw getwc
    getwchar getwd gid_t gmtime grantpt greg_t gregset_t group_member gsignal h2ceil h2cos h2exp h2exp10 h2exp2
    h2floor h2log h2log10 h2log2 h2rcp h2rint h2rsqrt h2sin h2sqrt h2tanh h2tanh_approx h2trunc half half2 hceil
    hcos hexp hexp10 hexp2 hfloor hlog hlog10 hlog2 hrcp hrint hrsqrt hsin hsqrt htanh htanh_approx htobe16 htobe32
    htobe64 htole16 htole32 htole64 htrunc hypot id_t ilogb index initstate ino64_t ino_t int2double intmax_t
    intptr_t isalnum isalpha isascii isatty isblank iscanonical iscntrl isctype isdigit iseqsig isfinite isgraph
    isgreater isgreaterequal isinf isinff isinfl isless islessequal islessgreater islower isnan isnanf isnanl
    isnormal isprint ispunct issignaling isspace issubnormal isunordered isupper iswalnum iswalpha iswblank iswcntrl
    iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit isxdigit iszero j0 j0f j0l j1
    j1f j1l jn jnf jnl jrand48 key_t kill killpg l64a labs lchmod lchown lcong48 ldexp ldiv ldiv_t le16toh le32toh
    le64toh lgamma libraryPropertyType link linkat ll2double llabs lldiv lldiv_t llmax llmin llogb llrint llround
    locale_t localeconv localtime lockf loff_t log log10 log1p log2 logb lrand48 lrint lround lseek lseek64 lstat
    lstat64 madvise main make_bfloat162 make_cudaExtent make_cudaPitchedPtr make_cudaPos make_double4_16a
    make_double4_32a make_half2 make_long4_16a make_long4_32a make_longlong4_16a make_longlong4_32a make_ulong4_16a
    make_ulong4_32a make_ulonglong4_16a make_ulonglong4_32a malloc max max_align_t mblen mbrlen mbrtowc mbsinit
    mbsnrtowcs mbsrtowcs mbstate_t mbstowcs mbtowc mcontext_t memccpy memchr memcmp memcpy memfd_create memfrob
    memmem memmove mempcpy memrchr memset min mincore mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat mkostemp
    mkostemp64 mkostemps mkostemps64 mkstemp mkstemp64 mkstemps mkstemps64 mktemp mktime mlock mlock2 mlockall mmap
    mmap64 mode_t modf mprotect mrand48 mremap msync munlock munlockall munmap nan nanosleep nearbyint newlocale
    nextafter nextdown nexttoward nextup nice nlink_t norm norm3d norm4d normcdf normcdfinv nrand48 nullptr_t nv
    nv_bfloat16 nv_bfloat162 nv_half nv_half2 obstack_printf obstack_vprintf off64_t off_t offsetof on_exit open
    open_memstream open_wmemstream opendir optarg opterr optind optopt pathconf pause pclose perror pid_t pipe pipe2
    pkey_alloc pkey_free pkey_get pkey_mprotect pkey_set popen pow pread pread64 printf process_madvise
    process_mrelease profil program_invocation_name program_invocation_short_name pselect psiginfo psignal ptrdiff_t
    ptsname putc putchar putenv puts putw putwc putwchar pwrite pwrite64 qecvt qfcvt qgcvt qsort quad_t quick_exit
    raise rand random rawmemchr rcbrt read readdir readdir64 readdir64_r readdir_r readlink readlinkat realloc
    reallocarray realpath recv register_t remainder remap_file_pages remove remquo rename renameat renameat2 revoke
    rewind rewinddir rhypot rindex rint rmdir rnorm rnorm3d rnorm4d round roundeven rpmatch rsqrt sbrk scalb scalbln
    scalbn scandir scandir64 scandirat scandirat64 scanf secure_getenv seed48 seekdir select send setbuf setbuffer
    setdomainname setegid setenv seteuid setgid sethostid sethostname setlinebuf setlocale setlogin setns setpayload
    setpayloadsig setpgid setpgrp setregid setresgid setresuid setreuid setsid setstate setuid setusershell setvbuf
    shm_open shm_unlink sig_atomic_t sig_t sigabbrev_np sigaction sigaddset sigaltstack sigandset sigblock sigdelset
    sigdescr_np sigemptyset sigevent_t sigfillset siggetmask sighandler_t sighold sigignore siginfo_t siginterrupt
    sigisemptyset sigismember sigmask signal signbit signgam significand sigorset sigpause sigpending sigprocmask
    sigqueue sigrelse sigreturn sigset sigset_t sigsetmask sigstack sigsuspend sigtimedwait sigval_t sigwait
    sigwaitinfo sin sincos sincospi sinh sinpi size_t sleep snprintf socklen_t sort sprintf sqrt srand srand48
    srandom sscanf ssignal ssize_t stack_t stat stat64 statx std stderr stdin stdout stpcpy stpncpy strcasecmp
    strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn strdup strdupa strerror strerrordesc_np
    strerrorname_np strfromd strfromf strfroml strfry strftime strlcat strlcpy strlen strncasecmp strncat strncmp
    strncpy strndup strndupa strnlen strpbrk strptime strrchr strsep strsignal strspn strstr strtod strtof strtok
    strtol strtold strtoq strtoul strtouq strverscmp strxfrm suseconds_t swab swprintf swscanf symlink symlinkat
    sync syncfs syncthreads_and syncthreads_count syncthreads_or syscall sysconf system sysv_signal tan tanh
    tcgetpgrp tcsetpgrp telldir tempnam tgamma tgkill time time_t timegm timelocal times timespec_get
    timespec_getres timezone tmpfile tmpfile64 tmpnam toascii tolower totalorder totalordermag toupper towctrans
    towlower towupper trunc truncate truncate64 ttyname ttyslot tzname tzset u_char u_int u_int16_t u_int32_t
    u_int64_t u_int8_t u_long u_quad_t u_short ualarm ucontext_t ufromfp ufromfpx uid_t uint uint2double uint3
    uintmax_t uintptr_t ull2double ullmax ullmin ulong umask umax umin ungetc ungetwc unlink unlinkat unlockpt
    unsetenv unshare useconds_t uselocale ushort usleep utimensat va_list valloc vasprintf vdprintf versionsort
    versionsort64 vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vprintf vscanf vsnprintf vsprintf vsscanf
    vswprintf vswscanf vwprintf vwscanf wait wcpcpy wcpncpy wcrtomb wcscasecmp wcscat wcschr wcschrnul wcscmp
    wcscoll wcscpy wcscspn wcsdup wcsftime wcslcat wcslcpy wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen
    wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstok wcstol wcstold wcstombs wcstoq wcstoul
    wcstouq wcswcs wcswidth wcsxfrm wctob wctomb wctrans wctrans_t wctype wctype_t wcwidth wint_t wmemchr wmemcmp
    wmemcpy wmemmove wmempcpy wmemset wprintf write wscanf y0 y1 yn""".split()
)
# Replaced by the preprocessor everywhere.
MACROS = frozenset(
    """ACCESSPERMS ADJ_ESTERROR ADJ_FREQUENCY ADJ_MAXERROR ADJ_MICRO ADJ_NANO ADJ_OFFSET ADJ_OFFSET_SINGLESHOT
    ADJ_OFFSET_SS_READ ADJ_SETOFFSET ADJ_STATUS ADJ_TAI ADJ_TICK ADJ_TIMECONST AIO_PRIO_DELTA_MAX ALLPERMS
    BC_BASE_MAX BC_DIM_MAX BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN BOOL_MAX BOOL_WIDTH BUFSIZ BYTE_ORDER
    CHARCLASS_NAME_MAX CHAR_BIT CHAR_MAX CHAR_MIN CHAR_WIDTH CLOCKS_PER_SEC CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM
    CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME
    CLOCK_REALTIME_ALARM CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_THREAD_CPUTIME_ID CLOSE_RANGE_CLOEXEC
    CLOSE_RANGE_UNSHARE COLL_WEIGHTS_MAX CPU_SETSIZE CSIGNAL DEFFILEMODE DELAYTIMER_MAX DLFO_EH_SEGMENT_TYPE
    DLFO_STRUCT_HAS_EH_COUNT DLFO_STRUCT_HAS_EH_DBASE DTTOIF E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT
    EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM
    ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST EFAULT EFBIG
    EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM EKEYEXPIRED
    EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP
    EMEDIUMTYPE EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO
    ENOBUFS ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG
    ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK
    ENOTSUP ENOTTY ENOTUNIQ ENXIO EOF EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO
    EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT
    ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EWOULDBLOCK
    EXDEV EXFULL EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX FD_SETSIZE FILENAME_MAX FOPEN_MAX F_LOCK F_OK F_TEST
    F_TLOCK F_ULOCK HAVE_MPI_OFFSET HOST_NAME_MAX HUGE_VAL HUGE_VALF HUGE_VALL HUGE_VAL_F128 HUGE_VAL_F32
    HUGE_VAL_F32X HUGE_VAL_F64 HUGE_VAL_F64X IFTODT INFINITY INT16_MAX INT16_MIN INT16_WIDTH INT32_MAX INT32_MIN
    INT32_WIDTH INT64_MAX INT64_MIN INT64_WIDTH INT8_MAX INT8_MIN INT8_WIDTH INTMAX_MAX INTMAX_MIN INTMAX_WIDTH
    INTPTR_MAX INTPTR_MIN INTPTR_WIDTH INT_FAST16_MAX INT_FAST16_MIN INT_FAST16_WIDTH INT_FAST32_MAX INT_FAST32_MIN
    INT_FAST32_WIDTH INT_FAST64_MAX INT_FAST64_MIN INT_FAST64_WIDTH INT_FAST8_MAX INT_FAST8_MIN INT_FAST8_WIDTH
    INT_LEAST16_MAX INT_LEAST16_MIN INT_LEAST16_WIDTH INT_LEAST32_MAX INT_LEAST32_MIN INT_LEAST32_WIDTH
    INT_LEAST64_MAX INT_LEAST64_MIN INT_LEAST64_WIDTH INT_LEAST8_MAX INT_LEAST8_MIN INT_LEAST8_WIDTH INT_MAX INT_MIN
    INT_WIDTH IOV_MAX LC_ADDRESS LC_ADDRESS_MASK LC_ALL LC_ALL_MASK LC_COLLATE LC_COLLATE_MASK LC_CTYPE
    LC_CTYPE_MASK LC_GLOBAL_LOCALE LC_IDENTIFICATION LC_IDENTIFICATION_MASK LC_MEASUREMENT LC_MEASUREMENT_MASK
    LC_MESSAGES LC_MESSAGES_MASK LC_MONETARY LC_MONETARY_MASK LC_NAME LC_NAME_MASK LC_NUMERIC LC_NUMERIC_MASK
    LC_PAPER LC_PAPER_MASK LC_TELEPHONE LC_TELEPHONE_MASK LC_TIME LC_TIME_MASK LINE_MAX LITTLE_ENDIAN LLONG_MAX
    LLONG_MIN LLONG_WIDTH LM_ID_BASE LM_ID_NEWLM LOGIN_NAME_MAX LONG_BIT LONG_LONG_MAX LONG_LONG_MIN LONG_MAX
    LONG_MIN LONG_WIDTH L_INCR L_SET L_XTND L_ctermid L_cuserid L_tmpnam MADV_COLD MADV_DODUMP MADV_DOFORK
    MADV_DONTDUMP MADV_DONTFORK MADV_DONTNEED MADV_DONTNEED_LOCKED MADV_FREE MADV_HUGEPAGE MADV_HWPOISON
    MADV_KEEPONFORK MADV_MERGEABLE MADV_NOHUGEPAGE MADV_NORMAL MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
    MADV_RANDOM MADV_REMOVE MADV_SEQUENTIAL MADV_UNMERGEABLE MADV_WILLNEED MADV_WIPEONFORK MAP_32BIT MAP_ANON
    MAP_ANONYMOUS MAP_DENYWRITE MAP_EXECUTABLE MAP_FAILED MAP_FILE MAP_FIXED MAP_FIXED_NOREPLACE MAP_GROWSDOWN
    MAP_HUGETLB MAP_HUGE_MASK MAP_HUGE_SHIFT MAP_LOCKED MAP_NONBLOCK MAP_NORESERVE MAP_POPULATE MAP_PRIVATE
    MAP_SHARED MAP_SHARED_VALIDATE MAP_STACK MAP_SYNC MAP_TYPE MATH_ERREXCEPT MATH_ERRNO MAXFLOAT MAXNAMLEN
    MAX_CANON MAX_INPUT MB_CUR_MAX MB_LEN_MAX MCL_CURRENT MCL_FUTURE MCL_ONFAULT MFD_ALLOW_SEALING MFD_CLOEXEC
    MFD_HUGETLB MINSIGSTKSZ MLOCK_ONFAULT MOD_CLKA MOD_CLKB MOD_ESTERROR MOD_FREQUENCY MOD_MAXERROR MOD_MICRO
    MOD_NANO MOD_OFFSET MOD_STATUS MOD_TAI MOD_TIMECONST MQ_PRIO_MAX MREMAP_DONTUNMAP MREMAP_FIXED MREMAP_MAYMOVE
    MS_ASYNC MS_INVALIDATE MS_SYNC M_1_PI M_1_PIf M_1_PIl M_2_PI M_2_PIf M_2_PIl M_2_SQRTPI M_2_SQRTPIf M_2_SQRTPIl
    M_E M_Ef M_El M_LN10 M_LN10f M_LN10l M_LN2 M_LN2f M_LN2l M_LOG10E M_LOG10Ef M_LOG10El M_LOG2E M_LOG2Ef M_LOG2El
    M_PI M_PI_2 M_PI_2f M_PI_2l M_PI_4 M_PI_4f M_PI_4l M_PIf M_PIl M_SQRT1_2 M_SQRT1_2f M_SQRT1_2l M_SQRT2 M_SQRT2f
    M_SQRT2l NAME_MAX NAN NFDBITS NGREG NGROUPS_MAX NL_ARGMAX NL_LANGMAX NL_MSGMAX NL_NMAX NL_SETMAX NL_TEXTMAX
    NO_TAGS_WITH_MODIFIERS NSIG NZERO PATH_MAX PDP_ENDIAN PIPE_BUF PKEY_DISABLE_ACCESS PKEY_DISABLE_WRITE
    POSIX_MADV_DONTNEED POSIX_MADV_NORMAL POSIX_MADV_RANDOM POSIX_MADV_SEQUENTIAL POSIX_MADV_WILLNEED PROT_EXEC
    PROT_GROWSDOWN PROT_GROWSUP PROT_NONE PROT_READ PROT_WRITE PTRDIFF_MAX PTRDIFF_MIN PTRDIFF_WIDTH P_tmpdir
    RAND_MAX RENAME_EXCHANGE RENAME_NOREPLACE RENAME_WHITEOUT RE_DUP_MAX ROBUST_LIST_LIMIT ROMIO_VERSION
    RTLD_BINDING_MASK RTLD_DEEPBIND RTLD_DEFAULT RTLD_GLOBAL RTLD_LAZY RTLD_LOCAL RTLD_NEXT RTLD_NODELETE
    RTLD_NOLOAD RTLD_NOW RTSIG_MAX R_OK SA_INTERRUPT SA_NOCLDSTOP SA_NOCLDWAIT SA_NODEFER SA_NOMASK SA_ONESHOT
    SA_ONSTACK SA_RESETHAND SA_RESTART SA_SIGINFO SA_STACK SCHAR_MAX SCHAR_MIN SCHAR_WIDTH SEEK_CUR SEEK_DATA
    SEEK_END SEEK_HOLE SEEK_SET SEM_VALUE_MAX SHRT_MAX SHRT_MIN SHRT_WIDTH SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD
    SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX
    SIGRTMIN SIGSEGV SIGSTKFLT SIGSTKSZ SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1
    SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIG_ATOMIC_WIDTH SIG_BLOCK SIG_DFL
    SIG_ERR SIG_HOLD SIG_IGN SIG_SETMASK SIG_UNBLOCK SIZE_MAX SIZE_WIDTH SNAN SNANF SNANF128 SNANF32 SNANF32X
    SNANF64 SNANF64X SNANL SSIZE_MAX STA_CLK STA_CLOCKERR STA_DEL STA_FLL STA_FREQHOLD STA_INS STA_MODE STA_NANO
    STA_PLL STA_PPSERROR STA_PPSFREQ STA_PPSJITTER STA_PPSSIGNAL STA_PPSTIME STA_PPSWANDER STA_RONLY STA_UNSYNC
    STDERR_FILENO STDIN_FILENO STDOUT_FILENO S_BLKSIZE S_IEXEC S_IFBLK S_IFCHR S_IFDIR S_IFIFO S_IFLNK S_IFMT
    S_IFREG S_IFSOCK S_IREAD S_IRGRP S_IROTH S_IRUSR S_IRWXG S_IRWXO S_IRWXU S_ISGID S_ISUID S_ISVTX S_IWGRP S_IWOTH
    S_IWRITE S_IWUSR S_IXGRP S_IXOTH S_IXUSR TIMER_ABSTIME TIME_UTC TMP_MAX TTY_NAME_MAX UCHAR_MAX UCHAR_WIDTH
    UINT16_MAX UINT16_WIDTH UINT32_MAX UINT32_WIDTH UINT64_MAX UINT64_WIDTH UINT8_MAX UINT8_WIDTH UINTMAX_MAX
    UINTMAX_WIDTH UINTPTR_MAX UINTPTR_WIDTH UINT_FAST16_MAX UINT_FAST16_WIDTH UINT_FAST32_MAX UINT_FAST32_WIDTH
    UINT_FAST64_MAX UINT_FAST64_WIDTH UINT_FAST8_MAX UINT_FAST8_WIDTH UINT_LEAST16_MAX UINT_LEAST16_WIDTH
    UINT_LEAST32_MAX UINT_LEAST32_WIDTH UINT_LEAST64_MAX UINT_LEAST64_WIDTH UINT_LEAST8_MAX UINT_LEAST8_WIDTH
    UINT_MAX UINT_WIDTH ULLONG_MAX ULLONG_WIDTH ULONG_LONG_MAX ULONG_MAX ULONG_WIDTH USHRT_MAX USHRT_WIDTH UTIME_NOW
    UTIME_OMIT WCHAR_MAX WCHAR_MIN WCHAR_WIDTH WCONTINUED WEOF WEXITED WINT_MAX WINT_MIN WINT_WIDTH WNOHANG WNOWAIT
    WORD_BIT WSTOPPED WUNTRACED W_OK XATTR_LIST_MAX XATTR_NAME_MAX XATTR_SIZE_MAX X_OK d_fileno errno
    math_errhandling sa_handler sa_sigaction si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower
    si_overrun si_pid si_pkey si_ptr si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value
    sigev_notify_attributes sigev_notify_function st_atime st_ctime st_mtime _tolower _toupper""".split()
)

# Whole families: of CUDA, MPI, NCCL, POSIX threads and system calls, and dagc's own; names with a leading underscore.
_FAMILY = re.compile(
    r"FE_[A-Z]|fe(clear|disable|enable|get|hold|raise|set|test|update)(except|env|mode|round)|fe(mode|nv|xcept)_t$"
    r"|_|I?P?MPI[XR]?_|MPI(CH|IMPL|U)|M_\w+f\d+x?$|[oO]?mpi_|OMPI_|QMPI|cuda[A-Z_]|CUDA|cu[A-Z]|CU_|CUresult|p?nccl|P?NCCL|nvtx|NVTX|nv[A-Z]|NV_"
    r"|pthread_|PTHREAD_|posix_|timer_|clock_|sched_|SCHED_|SYS_|FUTEX_|STATX_|CLONE_|FP_|ATOMIC_|DAGC|dagc"
    r"|tex[123C]|surf[123C]|atomic[A-Z]|ld[gc]|wmma|cooperative_groups"
)
# Types with a number, and their constructors.
_WIDTHS = re.compile(
    r"f(32|64)x?(add|div|fma|mul|sqrt|sub)\w*|u?int_?(fast|least)?\d+_t"
    r"|(make_)?(u?int|float|double|u?char|u?short|u?long|u?longlong)[1-4](_\d+a)?"
)
# Suffixes of variants of functions of the C library: isalpha_l, putc_unlocked; sinf128.
_SUFFIX = re.compile(r"_(l|r|unlocked)$")
_WIDTH = re.compile(r"(16|32|64|128)x?$")
_MACRO_FAMILY = re.compile(r"M_\w+f\d+x?$|MPICH|(MPI|DAGC|CUDA|CUDART|NCCL|PTHREAD|SYS|FUTEX|STATX|FE)_[A-Z]")


def is_global(name: str) -> bool:
    """Whether a function, type or variable of a program must not have this name in the global namespace of C++."""
    if name in FUNCTIONS or name in MACROS or name in VARIABLES or _FAMILY.match(name) or _WIDTHS.fullmatch(name):
        return True
    stem = _WIDTH.sub("", _SUFFIX.sub("", name))
    return len(stem) > 2 and (stem in FUNCTIONS or (stem[-1] in "fl" and stem[:-1] in FUNCTIONS))


def is_macro(name: str) -> bool:
    """Whether the preprocessor replaces this name everywhere."""
    return name in MACROS or _MACRO_FAMILY.match(name) is not None
