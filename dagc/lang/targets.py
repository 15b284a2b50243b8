"""What a target leaves out of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dagc.base.errors import Diagnostic, ProgramError
from dagc.lang import ast
from dagc.lang.lower import Parsed

# Of the CUDA toolkit, and those that need it. All CUDA programs are linked with `cudart`: naming it says that an
# implementation needs headers of the toolkit, such as CUB's.
CUDA_LIBRARIES = frozenset(
    """cublas cublasLt cuda cudart cudnn cufft cufile curand cusolver cusparse cusparseLt cutensor nccl npp nvml nvrtc
    nvshmem""".split()
)


def without_cuda(parsed: Parsed) -> tuple[Parsed, tuple[str, ...]]:
    """The program without the implementations that link libraries of the CUDA toolkit, which g++ compiles for the host,
    and a note for each.

    Raises ProgramError for a kernel of an op that has no other implementation for its device.
    """
    called = {(node.call.callee.name, node.kind) for node in ast.nodes(parsed.items) if isinstance(node, ast.Op)}
    notes: list[str] = []
    changed: dict[ast.Kernel, ast.Kernel] = {}
    for kernel in (item for item in parsed.items if isinstance(item, ast.Kernel)):
        gone = {impl: library for impl in _impls(kernel) if (library := _needs(impl))}
        for impl, library in gone.items():
            others = any(other not in gone for other in _impls(kernel) if other.device is impl.device)
            if (kernel.name, impl.device) in called and not others:
                message = f"without CUDA, kernel `{kernel.name}` has no {impl.device.value} implementation"
                help = f'add one without `link "{library}"`, or compile with --target cuda'
                found = Diagnostic("missing-implementation", message, impl.span, help)
                raise ProgramError([found], dict(parsed.sources))
            name = f"{kernel.name}.{impl.name}" if impl.name is not None else kernel.name
            notes.append(f"{name}: links {library}, which the host target does not have")
        if gone:
            changed[kernel] = replace(kernel, items=tuple(item for item in kernel.items if item not in gone))
    if not changed:
        return parsed, ()
    items = tuple(changed.get(item, item) if isinstance(item, ast.Kernel) else item for item in parsed.items)
    return replace(parsed, items=items), tuple(notes)


def _impls(kernel: ast.Kernel) -> Iterator[ast.Impl]:
    return (item for item in kernel.items if isinstance(item, ast.Impl))


def _needs(impl: ast.Impl) -> str:
    """The first library of the CUDA toolkit that it links; "" if it links none."""
    links = (name for item in impl.items if isinstance(item, ast.Link) for name in item.libraries)
    return next((name for name in links if name in CUDA_LIBRARIES), "")
