"""A picture of a report's headline and sorted times, as in the documentation.

    R=benchmarks/results/2026-11-21-4xh200-explore
    python benchmarks/report_picture.py $R/spmv-150000-all.db -o docs/images/report.png

Needs playwright and a Chromium (`apt-get install chromium`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from dagc import api

HIDDEN = """section:not(#classes), #theme, .picked, nav, footer, #classes h3,
  #classes h3 ~ * { display: none !important }
  section { border: 0 !important; margin: 0 !important; padding: 16px 0 0 !important }
  body { background: #fff !important }"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a results file")
    parser.add_argument("-o", dest="output", required=True, help="a PNG file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        api.report(args.results, path)
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1000, "height": 700}, color_scheme="light")
        page.goto(path.as_uri())
        page.add_style_tag(content=HIDDEN)
        page.screenshot(path=args.output, full_page=True)
        chromium.close()


if __name__ == "__main__":
    main()
