"""Several programs as one: a compiler spends most of its time on the headers, which are read once here."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from dagc.emit import emit, sources
from dagc.ir.plan import Plan
from tests.emit.build import write_headers
from tests.precompiled import precompiled_flags

# It goes by the name that it is started by.
MAIN = """
#include <cstring>

int main(int argc, char** argv) {{
  const char* slash = std::strrchr(argv[0], '/');
  const char* name = slash == nullptr ? argv[0] : slash + 1;
{cases}  return 64;
}}
"""
CASE = '  if (std::strcmp(name, "{name}") == 0) return {space}::main(argc, argv);\n'


def write_together(plans: Mapping[str, Plan], directory: Path, runners: Collection[str] = ()) -> Path:
    """Writes the benches of several plans, or where `runners` has the name the runner, as one source file."""
    text = write_in_namespaces(plans, directory, runners)
    write_headers(directory / "include")
    cases = (CASE.format(name=name, space=namespace(name)) for name in plans)
    together = directory / f"together{Path(sources(next(iter(plans.values())).target)[0]).suffix}"
    together.write_text(text + MAIN.format(cases="".join(cases)), encoding="utf-8")
    return together


def namespace(name: str) -> str:
    return re.sub(r"\W", "_", f"p_{name}")


def write_in_namespaces(plans: Mapping[str, Plan], directory: Path, runners: Collection[str]) -> str:
    """Writes the files of these programs; returns a text that includes all of them.

    Each is in a namespace of its own. What it declares has C++ linkage, so that two may have kernels of one name.
    """
    headers: set[str] = set()
    parts = []
    digest = sha256()
    for number, (name, plan) in enumerate(plans.items()):
        space = namespace(name)
        bench, runner = sources(plan.target)
        source = runner if name in runners else bench
        files = emit(plan)
        for file, text in files.items():
            path = directory / space / file
            path.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace('extern "C"', 'extern "C++"')
            path.write_text(text, encoding="utf-8")
            digest.update(text.encode())
            # For g++, files of one text and one time are one file to `#pragma once`.
            os.utime(path, (number, number))
            own = file.startswith(("code/", "unit_"))  # a file of code is compiled by itself
            if not own and (file not in (bench, runner) or file == source):
                headers.update(re.findall(r'^ *(#include (?:<.+>|"dagc/.+"))', text, re.M))
        driver = f'#include "{space}/driver.cu"\n' if "driver.cu" in files and source == bench else ""
        parts.append(f'namespace {space} {{\n#include "{space}/{source}"\n{driver}}}\n')
    # The build cache reads what is beside a source, and not the folders of the programs.
    return "\n".join([f"// {digest.hexdigest()}", *sorted(headers), *parts])


def build_together(
    plans: Mapping[str, Plan],
    directory: Path,
    program: str = "bench",
    flags: Sequence[str] = ("-O0",),
    sanitize: str = "",
    runners: Collection[str] = (),
) -> dict[str, Path]:
    """Builds the `program`s of several plans, for the host, and returns each by its name.

    `runners`: the names of those that are runners where `program` is "bench".
    """
    runners = plans if program == "runner" else runners
    source = write_together(plans, directory, runners)
    if "-O0" in flags and not any(flag.startswith("-fsanitize") for flag in flags):
        flags = (*flags, *precompiled_flags())
    defines = ("DAGC_RUNNER_MAIN",) if runners else ()
    out = directory / "together"
    built = build(Build([source], mpi=require_mpi(), sanitize=sanitize, defines=defines, flags=flags), out)
    programs = {name: directory / "programs" / name for name in plans}
    for path in programs.values():
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(built)
    return programs
