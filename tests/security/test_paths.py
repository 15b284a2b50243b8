"""Which files dagc reads and writes when a text, or whoever may write to a folder, names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError, UsageError
from dagc.base.source import INCLUDE
from dagc.cli.main import main
from dagc.store.records import WriterLock
from tests.regressions.programs import DAG, HEAD, KERNEL, write

SECRET = "root:secret-line:0:0\n"


# ---- the lock of a results file -------------------------------------------------------------


def test_a_lock_follows_no_link_and_cuts_nothing_off(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text(SECRET)
    lock = tmp_path / "r.db-lock"
    for make in (lock.symlink_to, lock.hardlink_to):
        make(precious)
        with pytest.raises(UsageError, match="is not a lock file of dagc"):
            WriterLock(tmp_path / "r.db")
        assert precious.read_text() == SECRET
        lock.unlink()
    lock.write_text("notes of mine\n")
    with pytest.raises(UsageError, match="is not a lock file of dagc"):
        WriterLock(tmp_path / "r.db")
    assert lock.read_text() == "notes of mine\n"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_no_lock(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "r.db-lock")
    with pytest.raises(UsageError, match="is not a lock file of dagc"):
        WriterLock(tmp_path / "r.db")


def test_a_lock_that_a_killed_process_left_is_taken(tmp_path: Path) -> None:
    for left in ("", "123456\n", f"{99:<19}\n"):
        (tmp_path / "r.db-lock").write_text(left)
        lock = WriterLock(tmp_path / "r.db")
        assert (tmp_path / "r.db-lock").read_text().split() == [str(os.getpid())]
        with pytest.raises(UsageError, match=f"another dagc writes to it .process {os.getpid()}."):
            WriterLock(tmp_path / "r.db")
        lock.release()
        assert not (tmp_path / "r.db-lock").exists()


# ---- include and setup ----------------------------------------------------------------------


def including(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return write(folder, f'{HEAD}include "{name}"\n{DAG}')


def findings(path: Path) -> str:
    found = api.check(path)
    assert found.errors
    return found.render()


@pytest.mark.parametrize("how", ["../elsewhere/k.dag", "absolute", "link.dag"])
def test_an_include_stays_in_the_folder_of_the_program(tmp_path: Path, how: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "k.dag").write_text(SECRET)
    path = including(tmp_path / "program", str(elsewhere / "k.dag") if how == "absolute" else how)
    (path.parent / "link.dag").symlink_to(elsewhere / "k.dag")
    said = findings(path)
    assert "outside the program's directory" in said
    assert "-I DIR" in said
    assert "secret-line" not in said


def test_folders_that_are_given_may_be_included_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(INCLUDE, raising=False)
    shared = tmp_path / "shared"
    (shared / "more").mkdir(parents=True)
    (shared / "more" / "k.dag").write_text(KERNEL)
    for name in ("../shared/more/k.dag", "more/k.dag"):
        path = including(tmp_path / "program", name)
        assert main(["check", str(path)]) == 2
        assert main(["check", str(path), "-I", str(shared)]) == 0
        assert main(["check", str(path), "-I", str(tmp_path / "program"), "-I", str(shared)]) == 0
    assert INCLUDE not in os.environ
    capsys.readouterr()


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    path = including(tmp_path, "pipe.dag")
    os.mkfifo(tmp_path / "pipe.dag")
    assert "not a regular file" in findings(path)
    (tmp_path / "small.py").unlink()
    os.mkfifo(tmp_path / "small.py")
    write_only = (tmp_path / "other.dag", HEAD + KERNEL + DAG)
    write_only[0].write_text(write_only[1])
    with pytest.raises(ProgramError, match="not a regular file"):
        api.run_setup(write_only[0], 1, tmp_path / "data")


def test_a_text_with_a_nul_is_refused(tmp_path: Path) -> None:
    path = including(tmp_path, "k.dag")
    (tmp_path / "k.dag").write_text(KERNEL.replace("+ 1", "+ 1 // \0"))
    assert "not a text in UTF-8" in findings(path)
    path.write_text(HEAD + "// \0\n" + KERNEL + DAG)
    with pytest.raises(UsageError, match="is a NUL"):
        api.check(path)


def test_lines_of_other_files_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text(SECRET)
    said = findings(including(tmp_path, "passwords"))
    assert "not a text of the language" in said
    assert "secret-line" not in said


def test_a_setup_outside_of_the_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere)
    program = tmp_path / "program"
    program.mkdir()
    path = write(program, (HEAD + KERNEL + DAG).replace('"small.py"', '"../elsewhere/small.py"'))
    with pytest.raises(ProgramError, match="outside the program's directory"):
        api.run_setup(path, 1, tmp_path / "data")
    monkeypatch.setenv(INCLUDE, str(elsewhere))
    api.run_setup(path, 1, tmp_path / "data")
    assert (tmp_path / "data").is_dir()


# ---- files of code --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        'cuda f from "../secret.cu"',
        'cuda f from "link.cu"',
        'cpp from "pipe.cpp"',
        'cuda """\n#include "../secret.cu"\n"""',
        'cuda """\n#include "link.cu"\n"""',
    ],
)
def test_code_stays_in_the_folder_of_the_program(tmp_path: Path, code: str) -> None:
    """Nothing of a file elsewhere is read, copied or shown, and nothing waits for a pipe."""
    (tmp_path / "secret.cu").write_text(f"void f() {{}}  // {SECRET}")
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "link.cu").symlink_to(tmp_path / "secret.cu")
    os.mkfifo(folder / "pipe.cpp")
    kernel = f"kernel k() {{ gpu {{ launch grid(1) block(1) {code} }} }}\n" if " f " in code else f"{code}\n"
    found = api.check(write(folder, f"{HEAD}{kernel}{DAG}"))
    assert "missing-file" in [d.code for d in found.diagnostics]
    assert SECRET not in found.render()


def test_names_of_files_and_libraries_are_data(tmp_path: Path) -> None:
    """They become words of a command line, of CMake and of #include."""
    name = 'a b;$(touch hit)\\#";.cu'.replace('"', "")
    (tmp_path / name).write_text("__global__ void f() {}\n")
    kernel = f'kernel k() {{ gpu {{ launch grid(1) block(1) cuda f from "{name}" }} }}\n'
    path = write(tmp_path, f"{HEAD}{KERNEL}{kernel}{DAG.replace('dag {', 'dag { own : gpu k()', 1)}")
    done = api.compile(path, tmp_path / "out", target="host", build=False)
    listed = (done.directory / "CMakeLists.txt").read_text()
    assert "touch" in listed
    assert "$(" not in listed
    assert "hit)" not in listed
    assert (done.directory / "code" / name).is_file()


@pytest.mark.parametrize("name", ["a;b/", "$ENV{HOME}/", "a\\b/"])
def test_names_of_folders_are_words_of_cmake(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    found = api.check(write(tmp_path, f'{HEAD}include "{name}"\n{KERNEL}{DAG}'))
    assert "is not a name that CMake takes" in found.render()
