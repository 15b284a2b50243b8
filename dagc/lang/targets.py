"""What a program has not on a target, or on this machine: implementations that link libraries which are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dagc.base.errors import Diagnostic, ProgramError
from dagc.ir.enums import OpKind
from dagc.lang import ast
from dagc.lang.lower import Parsed

# Of the CUDA toolkit, and those that need it. All CUDA programs are linked with `cudart`: naming it says that an
# implementation needs headers of the toolkit, such as CUB's.
CUDA_LIBRARIES = frozenset(
    """cublas cublasLt cuda cudart cudnn cufft cufile curand cusolver cusparse cusparseLt cutensor nccl npp nvml nvrtc
    nvshmem""".split()
)


def without_missing(
    parsed: Parsed, cuda: bool, installed: Callable[[str], bool] | None = None
) -> tuple[Parsed, tuple[str, ...]]:
    """The program without the implementations that link missing libraries, and a note for each: those of the CUDA
    toolkit where g++ compiles for the host, and others that are not `installed` here (None: all are).

    Raises ProgramError for a kernel of an op that has no other implementation for its device.
    """
    called = {(node.call.callee.name, node.kind) for node in ast.nodes(parsed.items) if isinstance(node, ast.Op)}
    notes: list[str] = []
    changed: dict[ast.Kernel, ast.Kernel] = {}
    for kernel in (item for item in parsed.items if isinstance(item, ast.Kernel)):
        missing = {impl: library for impl in _impls(kernel) if (library := _missing(impl, cuda, installed))}
        left = [other for other in _impls(kernel) if other not in missing]
        for impl, library in missing.items():
            asked = ((kernel.name, impl.device) in called, (kernel.name, OpKind.ANY) in called)
            none = (asked[0] and not any(other.device is impl.device for other in left)) or (asked[1] and not left)
            if none:
                raise ProgramError([_no_other(kernel, impl, library)], dict(parsed.sources))
            name = f"{kernel.name}.{impl.name}" if impl.name is not None else kernel.name
            why = "which the host target does not have" if library in CUDA_LIBRARIES else "which is not installed"
            notes.append(f"{name}: links {library}, {why}")
        if missing:
            changed[kernel] = replace(kernel, items=tuple(item for item in kernel.items if item not in missing))
    if not changed:
        return parsed, ()
    items = tuple(changed.get(item, item) if isinstance(item, ast.Kernel) else item for item in parsed.items)
    return replace(parsed, items=items), tuple(notes)


def _impls(kernel: ast.Kernel) -> Iterator[ast.Impl]:
    return (item for item in kernel.items if isinstance(item, ast.Impl))


def _no_other(kernel: ast.Kernel, impl: ast.Impl, library: str) -> Diagnostic:
    device = impl.device.value
    if library in CUDA_LIBRARIES:
        message = f"without CUDA, kernel `{kernel.name}` has no {device} implementation"
        help = f'add one without `link "{library}"`, or compile with --target cuda'
    else:
        message = f"`{library}` is not installed, and kernel `{kernel.name}` has no other {device} implementation"
        help = f'install it, add one without `link "{library}"`, or name its folder by -L in DAGC_CXXFLAGS'
    return Diagnostic("missing-implementation", message, impl.span, help)


def _missing(impl: ast.Impl, cuda: bool, installed: Callable[[str], bool] | None) -> str:
    """The first library that it links and that is missing; "" if none is."""
    for name in (name for item in impl.items if isinstance(item, ast.Link) for name in item.libraries):
        if name in CUDA_LIBRARIES:
            if not cuda:
                return name
        elif installed is not None and not installed(name):
            return name
    return ""
