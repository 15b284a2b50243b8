"""Libraries of programs in Python. Loads little: an application does so on each of its ranks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from dagc.base.errors import UsageError


def load_library(directory: str | Path) -> ModuleType:
    """The Python module of a library in the output directory of `dagc compile --as library`, or of `dagc best`.

    The module does not need dagc: an application can import `python/NAME` itself. Its class `Instance` is the program
    on the caller's arrays. Raises UsageError if the directory has no such module, or if the library is not built.
    """
    folder = Path(directory)
    packages = sorted(folder.glob("python/*/__init__.py"))
    if len(packages) != 1:
        raise UsageError(f"{folder} has no library in it", "write one with `dagc compile FILE --as library -o DIR`")
    package = packages[0].parent
    if not (folder / f"lib/lib{package.name}.so").exists():
        raise UsageError(f"{folder}/lib/lib{package.name}.so is missing", "compile without --no-build, or by CMake")
    # A name of its own: an application may have another module of the library's name.
    name = f"dagc_library_{package.name}_{hash(package.resolve()) & 0xFFFFFFFF:08x}"
    spec = importlib.util.spec_from_file_location(name, packages[0], submodule_search_locations=[str(package)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
