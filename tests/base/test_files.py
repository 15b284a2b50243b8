from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dagc.base.errors import DagcError, NotWritten, UsageError
from dagc.base.files import MARK, claim, is_output, output_directory, write_bytes_atomic, write_text_atomic


def _names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_text_is_replaced_and_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text_atomic(path, "one\n")
    path.chmod(0o640)
    write_text_atomic(path, "zwei ü\n")
    assert path.read_bytes() == "zwei ü\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert _names(tmp_path) == {"a.txt"}


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """A device too: as root, /dev/null itself could be replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text_atomic(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert _names(tmp_path) == {"pipe"}


def test_an_error_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(DagcError, match=r"nowhere/a\.txt cannot be written: No such file or directory"):
        write_text_atomic(tmp_path / "nowhere" / "a.txt", "x")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    # A limit on the size of files stands in for the disk: write() fails in the same place, with EFBIG.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(NotWritten, match="a.bin cannot be written"):
            write_bytes_atomic(path, b"x" * 10000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == {"a.bin"}


def test_a_new_directory_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with output_directory(out) as scratch:
        (scratch / "plan.json").write_text("{}")
        (scratch / "include").mkdir()
        (scratch / "include" / "a.hpp").write_text("//")
        assert not out.exists()
    assert _names(out) == {"plan.json", "include", MARK}
    assert (out / MARK).read_text() == "include\nplan.json\n"
    assert is_output(out)
    assert _names(tmp_path / "deep") == {"out"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_failure_leaves_nothing_or_the_old(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), output_directory(out) as scratch:
        (scratch / "plan.json").write_text("half")
        raise KeyboardInterrupt
    assert _names(tmp_path) == set()
    with output_directory(out) as scratch:
        (scratch / "plan.json").write_text("whole")
    with pytest.raises(RuntimeError), output_directory(out) as scratch:
        (scratch / "plan.json").write_text("half")
        raise RuntimeError
    assert (out / "plan.json").read_text() == "whole"
    assert _names(out) == {"plan.json", MARK}


def test_replacing_keeps_what_the_user_put_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with output_directory(out) as scratch:
        (scratch / "bench.cu").write_text("old")
        (scratch / "include").mkdir()
        (scratch / "include" / "old.hpp").write_text("old")
    (out / "notes.txt").write_text("mine")
    with output_directory(out) as scratch:
        (scratch / "bench.cpp").write_text("new")
        (scratch / "include").mkdir()
        (scratch / "include" / "new.hpp").write_text("new")
    assert _names(out) == {"bench.cpp", "include", "notes.txt", MARK}
    assert _names(out / "include") == {"new.hpp"}


def test_what_was_claimed_goes_with_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with output_directory(out) as scratch:
        (scratch / "bench.cpp").write_text("")
    for name in ("bench", "notes"):
        (out / name).write_text("")
    claim(out / "bench")
    claim(out / "bench")
    assert (out / MARK).read_text() == "bench.cpp\nbench\n"
    with output_directory(out) as scratch:
        (scratch / "bench.cu").write_text("")
    assert _names(out) == {"bench.cu", "notes", MARK}
    claim(tmp_path / "alone")
    assert _names(tmp_path) == {"out"}


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "home"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="contains files that dagc did not write"), output_directory(out):
        pytest.fail("the block must not run")
    with output_directory(out, force=True) as scratch:
        (scratch / "plan.json").write_text("{}")
    assert _names(out) == {"thesis.tex", "plan.json", MARK}
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="a directory is expected"), output_directory(tmp_path / "file", force=True):
        pytest.fail("the block must not run")


def test_an_edited_mark_reaches_nothing_outside(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with output_directory(out):
        pass
    (tmp_path / "precious").write_text("x")
    (out / MARK).write_text("../precious\n..\n.\n\n/etc/hostname-of-nobody\n")
    with output_directory(out) as scratch:
        (scratch / "a").write_text("")
    assert (tmp_path / "precious").exists()
    assert _names(out) == {"a", MARK}


def test_the_current_directory_can_be_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with output_directory(".") as scratch:
        (scratch / "a").write_text("")
    assert Path("a").exists()
    assert _names(Path()) == {"a", MARK}


def test_ctrl_c_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom dagc.base.files import output_directory\n"
        f"with output_directory({str(tmp_path / 'out')!r}) as scratch:\n"
        "    (scratch / 'plan.json').write_text('half')\n    print('writing', flush=True)\n    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "writing\n"
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=300)
    assert child.returncode == -signal.SIGINT
    assert _names(tmp_path) == set()


# ---- temporary folders ----------------------------------------------------------------------

_HOLD = """
import sys
from dagc.base.files import scratch_directory
with scratch_directory("dagc-test-") as folder:
    print(folder, *folder.parent.iterdir(), flush=True)
    sys.stdin.read()
"""


def test_a_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "dagc-test-of-the-user").mkdir()
    command = [sys.executable, "-c", _HOLD]

    def folder_of_another() -> list[str]:
        """Its path, and what is beside it."""
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.split()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        theirs = child.stdout.readline().split()[0]
        assert theirs in folder_of_another()  # it is alive
        child.kill()
    assert Path(theirs).is_dir()
    ours, *beside = folder_of_another()
    assert ours in beside
    assert theirs not in beside
    assert [path.name for path in tmp_path.iterdir()] == ["dagc-test-of-the-user"]
