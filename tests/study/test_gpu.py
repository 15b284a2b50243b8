"""The GPU that is named, or that is here: what kernels are compiled for, what is measured, and what the file is of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dagc import api
from dagc.build.toolchain import GPU, find_nvcc, gpus
from dagc.measure.machine import machine_facts
from dagc.perf.hardware import DESCRIPTORS
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study import gpu as tune_gpu
from dagc.study.build import resources_of
from dagc.study.task import tuning_task
from tests.study.programs import write_fill
from tests.study.test_tuned_inputs import SETUP, TEXT

pytestmark = pytest.mark.mpi
H100 = GPU("NVIDIA H100 PCIe", "9.0", 1 << 30, "580")


def test_kernels_are_compiled_for_the_gpu_that_is_named(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    gpus_here()
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    own = tmp_path / "own.toml"
    own.write_text("[mine]\n" + DESCRIPTORS.read_text().split("[a100]")[1].split("[v100]")[0])
    for gpu in ("a100", str(own)):
        tuned = tmp_path / f"{Path(gpu).stem}.db"
        tune_recipe.tune(program, tuned, TuneOptions(sizes="N=100", target="cuda", gpu=gpu, forms="off"))
        assert load_tuned(tuned).facts.arch == "sm_80"
        api.compile(program, tmp_path / "o", target="cuda", arch="sm_80", launch=str(tuned), build=False)


def test_nothing_is_measured_on_another_gpu(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    gpus_here(H100)
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    done = tune_recipe.tune(
        program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="cuda", gpu="a100", forms="off")
    )
    assert done.cells == 0
    assert any("this machine's GPU is sm_90, not sm_80: nothing is measured" in note for note in done.notes)


def test_the_file_is_of_the_gpu_that_was_measured(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    gpus_here(H100)
    made = tuning_task(api.read(write_fill(tmp_path, "tune bx in {32, 64}")), target="cuda", arch="sm_90")
    hardware, notes = tune_gpu.hardware_at_hand(made, "h200")
    assert not notes
    assert tune_gpu.gpu_name(made, hardware, measured=True) == "NVIDIA H100 PCIe"
    assert tune_gpu.gpu_name(made, hardware, measured=False) == "NVIDIA H200"


def test_registers_that_nvcc_does_not_say_are_told(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    """Of a GPU that it does not support, or where it is missing."""
    gpus_here()
    program, own = write_fill(tmp_path, "tune bx in {32, 64}"), tmp_path / "own.toml"
    own.write_text("[old]\n" + DESCRIPTORS.read_text().split("[v100]")[1].split("[")[0].replace("sm_70", "sm_20"))
    options = TuneOptions(sizes="N=100", target="cuda", gpu=str(own), top=0, forms="off")
    done = tune_recipe.tune(program, tmp_path / "t.db", options)
    assert any(
        "fill: 32 registers a thread are assumed, and instructions counted in the text, since nvcc" in note
        for note in done.notes
    )


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_resources_are_of_the_kernel_and_of_no_other_whose_name_begins_alike(tmp_path: Path) -> None:
    """`fill_b` holds 512 bytes of shared memory, the largest `fill` 256; what is issued is that of its default."""
    program = write_fill(
        tmp_path, "tune bx in {32, 64}\n  tune piece in {64, 8}",
        "__shared__ float s[piece]; s[i % piece] = i; __syncthreads();"
        " for (int k = 0; k < piece; ++k) if (i < n) y[i] = s[(i + k) % piece];",
    )  # fmt: skip
    text = program.read_text()
    other = text[text.index("kernel fill(") : text.index("dag {")].replace("kernel fill(", "kernel fill_b(")
    other = other.replace("piece in {64, 8}", "piece in {128}")
    text = text.replace("dag {", f"{other}array z : f32[n] out\ndag {{ b : gpu fill_b(z, n);")
    program.write_text(text)
    made = tuning_task(api.read(program), target="cuda", arch="sm_90")
    taken = resources_of(made, tmp_path / "r")
    assert {op: found.shared for op, found in taken.items()} == {"fill": 256, "b": 512}
    only = resources_of(tuning_task(api.read(program, {"fill.piece": "64"}), target="cuda", arch="sm_90"), tmp_path)
    assert only["fill"].instructions == taken["fill"].instructions


ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not gpus(), reason="needs a GPU")]
LARGE = ("host", pytest.param("cuda", marks=ON_A_GPU))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("target", LARGE)
def test_more_than_48_kib_of_shared_memory_are_launched(target: str, tmp_path: Path) -> None:
    """Each thread stores at the end of its block's 16 or 64 KiB; results are compared with the reference."""
    body = "extern __shared__ float s[]; float* last = s + kib * 256 - bx; if (i < n) { last[threadIdx.x] = i;"
    program = write_fill(tmp_path, "tune bx in {64}\n  tune kib in {16, 64}", f"{body} y[i] = last[threadIdx.x]; }}")
    program.write_text(program.read_text().replace("block(bx)", "block(bx) shared(kib * 1024)"))
    options = TuneOptions(sizes="N=300", target=target, method="exhaustive", cell=0.01)  # type: ignore[arg-type]
    done = tune_recipe.tune(program, tmp_path / "t.db", options)
    assert (done.cells, done.failures) == (2, ())
    assert {cell.choice.own["kib"] for cell, _ in load_tuned(tmp_path / "t.db").samples} == {16, 64}


@pytest.mark.parametrize("target", [pytest.param("cuda", marks=ON_A_GPU)])
def test_a_variant_that_loses_the_context_of_the_gpu_is_recorded_and_training_goes_on(
    target: str, tmp_path: Path
) -> None:
    """One setting writes far outside of its array at one input; the others are measured there, and at later inputs."""
    (tmp_path / "modes.py").write_text(SETUP)
    (tmp_path / "modes.dag").write_text(TEXT.replace("__builtin_trap();", "y[1ll << 40] = 1;"))
    inputs = tuple(f"made(mode = {m}, n = {n})" for m in range(3) for n in (64, 78, 80))
    options = TuneOptions(target=target, cell=0.01, inputs=inputs, check_at=inputs[0])
    done = tune_recipe.tune(tmp_path / "modes.dag", tmp_path / "t.db", options)
    assert [failure.partition(": ")[0] for failure in sorted(done.failures)] == [
        f"fill mode=2 at made(mode = {m}, n = 78)" for m in range(3)
    ]
    tuned = load_tuned(tmp_path / "t.db")
    timed = {(cell.case.text, cell.choice.own["mode"]) for cell, sample in tuned.samples if sample.times}
    assert timed == {(i, mode) for i in inputs for mode in range(3) if mode != 2 or "n = 78" not in i}
    selector = tuned.choosers["fill"].selector
    assert selector is not None
    assert selector.ask([2.0, 78.0]).label != 2, "it counts as infinitely slow there"


def test_the_machine_is_what_the_process_may_use(
    gpus_here: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus_here(H100, H100)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {2, 3, 5})
    here = machine_facts("cuda", "sm_90")
    assert (here.cores, here.gpus) == (3, ("NVIDIA H100 PCIe",) * 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpus.cache_clear()
    assert machine_facts("cuda", "sm_90").gpus == ()
