"""A library that dagc has built, as a Python wheel: a package with the library in it."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from pathlib import Path

from dagc.base.errors import MissingTool
from dagc.base.resources import __version__


def require_wheel() -> None:
    """Raises MissingTool without the package `wheel`: asked before anything is compiled."""
    if importlib.util.find_spec("wheel") is None:
        raise MissingTool("the package `wheel` is missing, which --as wheel needs", "pip install wheel")


def write_wheel(directory: Path, name: str, library: Path) -> Path:
    """Write `dist/NAME-VERSION-py3-none-PLATFORM.whl` in `directory`, from `python/NAME` and `library`.

    Its version is that of dagc. After `require_wheel`.
    """
    from wheel.wheelfile import WheelFile  # optional

    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform}"
    version = __version__.replace("-", "_")
    out = directory / "dist" / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with WheelFile(str(out), "w") as wheel:
        for source in sorted((directory / "python" / name).glob("*.py")):
            wheel.write(str(source), f"{name}/{source.name}")
        for built in sorted(library.parent.glob("*.so")):  # with those of its plans
            wheel.write(str(built), f"{name}/{built.name}")
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: Written by dagc.\n"
            "Requires-Python: >=3.9\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: dagc {version}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
    return out
