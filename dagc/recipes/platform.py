"""`dagc platform`: a platform file of SimGrid, for `explore --simulate`."""

from __future__ import annotations

from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.files import check_new_file, write_text_atomic
from dagc.study.platforms import fitted_link, platform_like, platform_of


def platform(out: str | Path, ranks: int, like: str | None = None, force: bool = False) -> str | None:
    """Write the file of a machine that dagc knows, or of the one at hand, which two ranks measure; `force`: in place of
    one that exists. Returns what to print; None on the second of them. Raises DagcErrors."""
    path = Path(out)
    if path.suffix != ".xml":
        raise UsageError(f"-o {path}: SimGrid reads platforms from files that end in .xml", "choose such a name")
    check_new_file(path, force)
    if like is not None:
        write_text_atomic(path, platform_like(like, ranks))
        return f"{path}: {like}, for {ranks} ranks"
    fit = fitted_link()
    if fit is None:
        return None
    write_text_atomic(path, platform_of(fit, ranks))
    return f"{path}: {fit.text}"
