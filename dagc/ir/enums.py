"""Enumerations that the syntax tree and the IR share."""

from __future__ import annotations

from enum import Enum, IntEnum


class ElementType(Enum):
    """Types of scalars and array elements."""

    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F32 = "f32"
    F64 = "f64"
    BOOL = "bool"

    @property
    def size(self) -> int:
        """The size of an element in bytes."""
        return 1 if self is ElementType.BOOL else int(self.value[1:]) // 8

    @property
    def is_float(self) -> bool:
        return self in (ElementType.F32, ElementType.F64)

    @property
    def is_unsigned(self) -> bool:
        return self in (ElementType.U8, ElementType.U16, ElementType.U32, ElementType.U64)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not ElementType.BOOL

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        bits = 8 * self.size
        return (0, 2**bits - 1) if self.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def cxx(self) -> str:
        """The name of the type in C++: `float`, `std::int64_t`."""
        plain = {
            ElementType.F32: "float", ElementType.F64: "double", ElementType.I32: "int", ElementType.U32: "unsigned",
            ElementType.BOOL: "bool",
        }  # fmt: skip
        return plain.get(self) or f"std::{'u' if self.is_unsigned else ''}int{8 * self.size}_t"

    @property
    def numpy(self) -> str:
        """The name of the type in NumPy: `f4`, `b1`."""
        return f"{self.value[0]}{self.size}"


class Place(Enum):
    DEVICE = "device"
    HOST = "host"
    PINNED = "pinned"
    ANY = "any"


class Role(Enum):
    CONST = "const"
    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Mode(Enum):
    """How an op uses an array. `ACCUMULATE`: it adds to elements, atomically, and reads them in no other way."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    ACCUMULATE = "accumulate"

    def commutes(self, other: Mode) -> bool:
        """Whether two accesses to the same elements need no order."""
        return self is other and self in (Mode.IN, Mode.ACCUMULATE)


class OpKind(Enum):
    GPU = "gpu"
    CPU = "cpu"
    ANY = "any"
    DAG = "dag"


class Transport(Enum):
    """How messages travel; the members in the order of their usual speed, the fastest last."""

    MPI_HOST = "mpi_host"
    MPI_CUDA = "mpi_cuda"
    NCCL = "nccl"
    PEER = "peer"
    PUT = "put"  # of exchanges alone

    @property
    def grouped(self) -> bool:
        """Whether an exchange of device arrays is one GPU op."""
        return self in (Transport.NCCL, Transport.PEER, Transport.PUT)

    @property
    def of_collectives(self) -> Transport:
        """That of collectives, where this one is that of all messages."""
        return Transport.PEER if self is Transport.PUT else self

    @property
    def calls(self) -> bool:
        """Whether it has calls for collectives. Else they are messages, and reductions are named when ranks connect."""
        return self is not Transport.PEER

    @property
    def of_one_host(self) -> bool:
        """Whether it reaches ranks of the same host only, so that another one may move messages between hosts."""
        return self in (Transport.PEER, Transport.PUT)

    @property
    def within_kernels(self) -> bool:
        """Whether a kernel of all iterations can send by it."""
        return self in (Transport.PEER, Transport.PUT)


class Pairs(Enum):
    """The pairs of ranks whose messages an op moves. The values are functions of templates/runtime/dagc/message.hpp."""

    ALL = "all"
    WITHIN_HOST = "within"
    BETWEEN_HOSTS = "between"


class CodeLang(Enum):
    CUDA = "cuda"
    CPP = "cpp"


HOST_LIBRARIES = frozenset(("cublas", "curand"))  # of the CUDA toolkit, of which the host target has a part in headers


class Opcode(IntEnum):
    """The kind of a row of the table that a runner executes (templates/runtime/dagc/runner.hpp)."""

    ISSUE = 0
    RECORD = 1
    WAIT = 2
    SYNC = 3
    BEGIN = 4
    END = 5
    LOOP = 6
