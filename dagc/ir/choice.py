"""Choices: the values of a program's decisions, from the command line to the emitted code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dagc.ir.program import DEVICE, Value, shown

PROGRAM = "program"  # stands for an op's name where decisions of the whole program are open: a keyword, so no op has it
VARIANT = "variant"  # the name of the choice among implementations; no tunable can have it
FORM = "form."  # begins the names of the tunables that the compiler adds (`dagc.forms`): no op is called `form`
FUSE = "fuse."  # begins the names of the decisions that fuse launches (`dagc.forms.groups`): no op is called `fuse`
AS_WRITTEN = 1  # the value of a form that leaves the kernel as it is
_BLOCKS = (["bx"], ["bx", "by"], ["bx", "by", "bz"])


def qualified(site: str, name: str) -> str:
    """The name of a decision for -D: `gemm.bx`; a decision of the whole program is its own."""
    return name if site == PROGRAM else f"{site}.{name}"


def own_name(decision: str) -> str:
    """The name of a decision at its site: `bx` of `gemm.bx`, `form.wide` of `gemm.form.wide`."""
    return decision[len(site_of(decision)) :].removeprefix(".")


def site_of(decision: str) -> str:
    """The site of a decision: `gemm` of `gemm.bx`, "" of one of the whole program."""
    return decision.rpartition(".")[0].removesuffix(f".{FORM[:-1]}")


def names_form(decisions: Iterable[str]) -> bool:
    """Whether any of the decisions is a form of a kernel, or fuses launches."""
    return any(own_name(decision).startswith(FORM) or decision.startswith(FUSE) for decision in decisions)


def is_formed(decision: str, value: Value) -> bool:
    """Whether this value of a decision leaves a kernel other than as written, or makes launches one."""
    if decision.startswith(FUSE):
        return bool(value)
    return own_name(decision).startswith(FORM) and value != AS_WRITTEN


def of_implementations(decision: str) -> bool:
    """Whether a decision chooses the variant or the device of an op."""
    return own_name(decision) in (VARIANT, DEVICE) and "." in decision


@dataclass(frozen=True, slots=True)
class Choice(Mapping[str, Value]):
    """Values of decisions, by their names for -D: `gemm.bx`, `gemm.variant`, `transport`.

    That of a site has its decisions in the order of the program; where the variant is open, it is the first, and the
    others are those of the variant. That of a configuration has all decisions except the order and the streams of the
    ops, sorted by name: it has one graph, one space of traversals and (except for `capture`) one runner library.
    Choices are ordered, even if a decision is a number in one and a text in the other: numbers come first.
    """

    decisions: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Choice:
        """Sorted by name, as a configuration is."""
        return cls(tuple(sorted(values.items())))

    @classmethod
    def at(cls, site: str, values: Iterable[tuple[str, Value]]) -> Choice:
        """That of a site, by the names there: `Choice.at("gemm", [("bx", 64)])`."""
        return cls(tuple((qualified(site, name), value) for name, value in values))

    def __getitem__(self, name: str) -> Value:
        for known, value in self.decisions:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    @property
    def formed(self) -> tuple[str, ...]:
        """The forms that leave kernels other than as written."""
        return tuple(n for n, value in self.decisions if own_name(n).startswith(FORM) and is_formed(n, value))

    def __lt__(self, other: Choice) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[tuple[str, bool, Value], ...]:
        return tuple((name, isinstance(value, str), value) for name, value in self.decisions)

    @property
    def text(self) -> str:
        """`capture=false transport=nccl yl.block=64`; equal for equal choices."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.decisions)

    # ---- of one site --------------------------------------------------------------------------

    @property
    def own(self) -> dict[str, Value]:
        """The values of one site by the names there: `{"bx": 64}`."""
        return {own_name(name): value for name, value in self.decisions}

    @property
    def variant(self) -> str:
        """The variant of a site, "" if it is not open."""
        return next((str(value) for name, value in self.decisions if own_name(name) == VARIANT), "")

    @property
    def in_words(self) -> str:
        """That of one site, to read: `32 x 8` for a block, `bx=32 by=8 tile=16` with further tunables; preceded by the
        variant if that is open: `ell`, `csr lanes=8`; followed by its forms that are not as written:
        `32 x 8 form.wide=4`."""
        own = self.own
        variant = own.pop(VARIANT, None)
        forms = [f"{n}={v}" for n in list(own) if n.startswith(FORM) and (v := own.pop(n)) != AS_WRITTEN]
        block = list(own) in _BLOCKS
        values = [" x ".join(map(str, own.values()))] if block else [f"{n}={v}" for n, v in own.items()]
        return " ".join([str(variant or ""), *values, *forms]).strip() or "as written"
