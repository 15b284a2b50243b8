"""The documentation: the site builds without warnings, its links resolve, it has every command and option."""

from __future__ import annotations

import os
import pkgutil
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from dagc import api
from dagc.cli.main import COMMANDS as commands
from dagc.cli.main import command

ROOT = Path(__file__).parents[2]
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
PREFIX = "http://site/"  # stands for the folder of the built site, to resolve relative links against


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        elif tag in ("img", "script") and values.get("src"):
            self.loaded.append(str(values["src"]))
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(str(values["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_links_and_anchors_of_the_site(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 20
    lost = []
    for name, page in pages.items():
        if name == "404.html":  # served for any address, so its links begin with that of the site
            continue
        for link in page.links + page.loaded:
            target = urlsplit(urljoin(PREFIX + name, link))
            if f"{target.scheme}://{target.netloc}/" != PREFIX:
                continue
            path = unquote(target.path).lstrip("/")
            path = f"{path}index.html" if not path or path.endswith("/") else path
            there = path in pages or (site / path).is_file()
            anchor = unquote(target.fragment)
            if not there or (anchor and path in pages and anchor not in pages[path].anchors):
                lost.append(f"{name}: {link}")
    assert lost == []


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = {link for path in site.rglob("*.html") for link in Page(path).loaded}
    assert [link for link in loaded if urlsplit(link).netloc] == []


def test_the_whole_python_api_is_in_the_reference(site: Path) -> None:
    anchors = Page(site / "reference" / "api" / "index.html").anchors
    assert {name for name in api.__all__ if f"dagc.api.{name}" not in anchors} == set()


def files(*patterns: str) -> list[Path]:
    """Files of the project whose path matches one of `patterns` (`*` matches `/` too). Needs no git."""
    folders = ("benchmarks", "dagc", "docs", "grammar", "samples", "templates", "tests")
    paths = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    names = sorted(path.relative_to(ROOT).as_posix() for path in paths if path.is_file())
    return [ROOT / name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def test_links_of_the_pages_outside_of_the_site() -> None:
    lost = []
    for path in files("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "samples/*.md", "benchmarks/*.md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            if urlsplit(link).netloc:
                continue
            page = (path.parent / target).resolve() if target else path
            if not page.exists() or (anchor and anchor not in anchors_of(page)):
                lost.append(f"{path.relative_to(ROOT)}: {link}")
    assert lost == []


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_pages_that_the_source_names_are_there() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for path in files("*.py", "*.hpp", "*.cuh", "*.cu", "*.md", "*.j2", "*.sh", "*.toml", "*.yml")
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg|png)\b", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {(file, page) for file, page in named if not (ROOT / page).is_file()} == set()


def test_modules_that_the_documentation_names_are_there() -> None:
    pages = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files("docs/*.md")}
    names = {(page, name) for page, text in pages.items() for name in re.findall(r"\bdagc(?:\.[A-Za-z_]\w*)+", text)}
    assert len(names) > 20
    assert {(page, name) for page, name in names if not resolves(name)} == set()


def test_paths_that_the_documentation_names_are_there() -> None:
    pages = files("docs/*.md", "README.md", "CONTRIBUTING.md", "samples/*.md")
    folders = "dagc|tests|benchmarks|samples|templates|grammar|docs"
    named = {
        (page.relative_to(ROOT).as_posix(), name)
        for page in pages
        for name in re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {(page, name) for page, name in named if not (ROOT / name).exists()} == set()


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    if name.rpartition(".")[2] in ("db", "html", "hpp"):  # a file
        return True
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_sample_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "samples.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in (ROOT / "samples").iterdir() if path.is_dir())


# ---- commands and options ---------------------------------------------------------------------


def section(title: str) -> str:
    """A section of the page of commands, with its sub-sections."""
    found = re.search(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def option_words(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))


def rows(text: str) -> dict[str, tuple[str, str]]:
    """The options of a table, as they are spelled: default and meaning."""
    cells = re.findall(r"^\| `(-.*?)` \|\s*(.*?)\s*\| (.*) \|$", text, re.MULTILINE)
    return {spelling.replace("\\|", "|"): (default, meaning) for spelling, default, meaning in cells}


def test_every_command_and_option_is_in_the_reference_as_it_is_declared() -> None:
    shared = option_words(" ".join(rows(section("Shared options"))))
    assert sorted(re.findall(r"^## dagc (\w+)", COMMANDS, re.MULTILINE)) == sorted(commands)
    for name in commands:
        declared = {o.spelling: o for o in command(name).options if o.flag.startswith("-")}
        text = section(f"dagc {name}")
        table = rows(text)
        also = option_words(" ".join(re.findall(r"[Tt]akes\s+((?:`[^`]*`|,\s|\sand\s)+)", text)))
        assert also <= shared, name
        assert table.keys() == {spelling for spelling, o in declared.items() if o.flag not in also}, name
        for spelling, (default, meaning) in table.items():
            option = declared[spelling]
            assert option.constant in default, (name, spelling)
            assert not option.only or option_words(option.only) & option_words(meaning), (name, spelling)
