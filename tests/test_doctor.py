from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagc import doctor
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import GPU, find_cxx, parse_gpus

EXAMINE = (
    "from dagc import doctor; f = doctor.examine(); print(doctor.render_json(f)); raise SystemExit(doctor.exit_code(f))"
)


def _examine_with(**variables: str) -> tuple[int, dict[str, dict[str, object]]]:
    """The facts as another process sees them, with these variables."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", EXAMINE], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert content["host_can_run"] == (done.returncode == 0)
    return done.returncode, {fact["name"]: fact for fact in content["facts"]}


def test_this_machine() -> None:
    facts = {fact.name: fact for fact in doctor.examine()}
    assert facts["numpy"].found
    assert facts["C++ compiler"].found == (find_cxx() is not None)
    assert facts["MPI"].found == (find_mpi() is not None)
    assert doctor.host_can_run(facts.values()) == all(
        facts[name].found for name in ("C++ compiler", "MPI", "mpiexec", "lark", "jinja2", "numpy") if name in facts
    )
    assert facts["default target"].detail.startswith(("host: ", "cuda: "))


def test_a_variable_that_names_nothing_is_a_fact_and_not_a_failure() -> None:
    code, facts = _examine_with(DAGC_CXX="/nowhere/g++", DAGC_NVCC="/nowhere/nvcc")
    assert code == 3
    assert not facts["C++ compiler"]["found"]
    assert "DAGC_CXX=/nowhere/g++" in str(facts["C++ compiler"]["detail"])
    assert not facts["nvcc"]["found"]


def test_nccl_is_looked_for_in_its_folder(tmp_path: Path) -> None:
    _, facts = _examine_with(NCCL_HOME=str(tmp_path))
    assert not facts["NCCL"]["found"]
    assert f"NCCL_HOME={tmp_path}" in str(facts["NCCL"]["detail"])
    for name in ("include/nccl.h", "lib/libnccl.so.2"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    _, facts = _examine_with(NCCL_HOME=str(tmp_path))
    assert facts["NCCL"]["detail"] == str(tmp_path / "lib/libnccl.so.2")


def test_a_machine_without_tools(tmp_path: Path) -> None:
    code, facts = _examine_with(PATH=str(tmp_path), CUDA_HOME=str(tmp_path), HOME=str(tmp_path))
    assert code == 3
    assert not facts["C++ compiler"]["found"]
    assert "g++" in str(facts["C++ compiler"]["help"])


def test_an_mpi_whose_wrapper_fails(tmp_path: Path) -> None:
    wrapper = tmp_path / "bin" / "mpicxx"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    wrapper.chmod(0o755)
    code, facts = _examine_with(DAGC_MPICXX=str(wrapper))
    assert code == 3
    assert not facts["MPI"]["found"]
    assert "is not the compiler wrapper" in str(facts["MPI"]["detail"])


def test_a_rank_does_not_ask_the_mpi() -> None:
    _, facts = _examine_with(PMI_RANK="0", PMI_SIZE="1")
    asked = facts.get("MPI takes device pointers")
    assert asked is None or asked["detail"] == "it could not be queried"


def test_text_shows_cost_and_mend_of_what_is_absent() -> None:
    facts = (
        doctor.Fact("here", True, "1.0"),
        doctor.Fact("tool", False, "", "no tool", "get one", needed=True),
        doctor.Fact("extra", False, ""),
    )
    assert doctor.render_text(facts).splitlines() == [
        "here   ok       1.0",
        "tool   MISSING",
        "                cost: no tool",
        "                help: get one",
        "extra  none",
        "",
        "The host target cannot run here: see what is MISSING.",
    ]
    assert doctor.exit_code(facts) == 3
    assert doctor.exit_code(facts[:1]) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("No devices were found\n", ()),
        (
            "NVIDIA H200, 9.0, 143771, 580.82.07\nNVIDIA A100, PCIe, 8.0, 40960, 580.82.07\n",
            (
                GPU("NVIDIA H200", "9.0", 143771 << 20, "580.82.07"),
                GPU("NVIDIA A100, PCIe", "8.0", 40960 << 20, "580.82.07"),
            ),
        ),
        ("NVIDIA H200, [N/A], [N/A], 580\n", ()),
    ],
)
def test_what_nvidia_smi_says(text: str, found: tuple[GPU, ...]) -> None:
    assert parse_gpus(text) == found
    assert [gpu.arch for gpu in parse_gpus(text)] == [f"sm_{gpu.capability.replace('.', '')}" for gpu in found]
