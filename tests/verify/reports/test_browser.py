"""The HTML page in a real browser: what is drawn, and that it fits a phone."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from onnxport.verify import Report
from onnxport.verify.reports.html_page import to_html

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESKTOP = 390, 1200
DARK = "--blink-settings=preferredColorScheme=0"
FLAGS = ["--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars"]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed (scripts/install_browser installs it)"),
]

# Pages carry no script and allow none. The frame that holds them measures from outside.
MEASURE = """
const number = (element, name) => element ? Math.round(element.getBoundingClientRect()[name]) : null;
document.title = JSON.stringify([...document.querySelectorAll('iframe')].map(frame => {
  const page = frame.contentDocument, root = page.documentElement;
  const shown = selector => [...page.querySelectorAll(selector)].filter(e => e.getBoundingClientRect().width > 0);
  const style = page.defaultView.getComputedStyle(page.body);
  return {
    width: frame.contentWindow.innerWidth, scrollWidth: root.scrollWidth, scripts: page.scripts.length,
    images: page.images.length, title: page.title, heading: page.querySelector('h1').innerText,
    background: style.backgroundColor, text: style.color, fontSize: style.fontSize,
    headings: shown('h2').map(e => e.innerText), marks: shown('.row use.mark').length, rows: shown('.row').length,
    beyond: shown('.row use.mark').filter(mark => {
      const plot = mark.ownerSVGElement.getBoundingClientRect(), box = mark.getBoundingClientRect();
      const centre = (box.left + box.right) / 2;
      return centre < plot.left || centre > plot.right;
    }).length,
    cut: shown('.scroll').filter(table => table.scrollWidth > table.clientWidth).length,
    bars: shown('.row:not(.bars) rect.bar').length,
    barsBeyond: shown('.row:not(.bars) rect.bar').filter(bar => {
      const plot = bar.ownerSVGElement.getBoundingClientRect(), box = bar.getBoundingClientRect();
      return box.left < plot.left - 1 || box.right > plot.right + 1;
    }).length,
    barColours: shown('.row:not(.bars) rect.bar').map(bar => page.defaultView.getComputedStyle(bar).fill),
    failedBeforeOverview: number(page.querySelector('#failed'), 'top') < number(page.querySelector('#overview'), 'top'),
  };
}));
"""


def browse(folder: Path, *arguments: str) -> str:
    """Runs the browser with a fresh profile and returns what it prints."""
    assert BROWSER is not None
    unsafe = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [BROWSER, *FLAGS, *unsafe, f"--user-data-dir={folder / 'profile'}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def measure(folder: Path, pages: list[tuple[str, int]], *flags: str) -> list[dict[str, Any]]:
    """Opens every page in a frame of its width and returns what is to be seen there."""
    frames = "".join(
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{escape(page)}"></iframe>'
        for page, width in pages
    )
    outer = folder / "outer.html"
    outer.write_text(f"<!DOCTYPE html><body>{frames}<script>onload = () => {{{MEASURE}}}</script>", encoding="utf-8")
    dom = browse(folder, *flags, "--window-size=1400,1000", "--dump-dom", outer.as_uri())
    found: list[dict[str, Any]] = json.loads(unescape(dom.partition("<title>")[2].partition("</title>")[0]))
    return found


def unfolded(page: str) -> str:
    return page.replace("<details>", "<details open>")


def test_it_fits_a_phone_and_everything_is_drawn(
    make_report: Callable[..., Report], hostile_report: Report, tmp_path: Path
) -> None:
    page, hostile = to_html(make_report()), to_html(hostile_report)
    wide = page.replace("<main>", '<main><div style="width:600px">too wide</div>')
    phone, opened, desktop, attack, broken = measure(
        tmp_path,
        [(page, PHONE), (unfolded(page), PHONE), (unfolded(page), DESKTOP), (unfolded(hostile), PHONE), (wide, PHONE)],
    )
    for seen in (phone, opened, attack):
        assert seen["width"] == PHONE
        assert seen["scrollWidth"] <= PHONE
        assert (seen["scripts"], seen["images"]) == (0, 0)
        assert seen["cut"] == 0, "every variant is in sight"
    assert desktop["cut"] == 0
    assert broken["scrollWidth"] > PHONE, "the measurement would have seen it"
    assert desktop["scrollWidth"] <= DESKTOP
    for seen in (phone, opened, desktop):
        assert seen["heading"] == "✕ Does not agree with the reference"
        assert seen["headings"][:2] == ["What failed", "Checks by variant"]
        assert seen["failedBeforeOverview"]
        assert (seen["marks"], seen["rows"]) == (24, 14)
        assert seen["beyond"] == 0, "no mark leaves its plot"
        assert (seen["background"], seen["text"]) == ("rgb(255, 255, 255)", "rgb(27, 31, 36)")
        assert seen["fontSize"] == "16px"
    assert attack["title"].startswith("fail: \\x00"), "and no script has run"


def test_dark_where_the_reader_prefers_it(make_report: Callable[..., Report], tmp_path: Path) -> None:
    (seen,) = measure(tmp_path, [(to_html(make_report(failing=False)), PHONE)], DARK)
    assert seen["heading"] == "✓ Agrees with the reference"
    assert (seen["background"], seen["text"]) == ("rgb(17, 20, 23)", "rgb(231, 234, 238)")


def test_latencies_fit_a_phone_and_every_bar_is_drawn(timed_report: Report, tmp_path: Path) -> None:
    phone, desktop = measure(tmp_path, [(to_html(timed_report), PHONE), (to_html(timed_report), DESKTOP)])
    for seen in (phone, desktop):
        assert seen["scrollWidth"] <= seen["width"]
        assert "Latency" in seen["headings"]
        assert seen["bars"] == 12, "two sizes, three variants, the median and the 90th percentile"
        assert seen["barsBeyond"] == 0, "no bar leaves its plot"
    (dark,) = measure(tmp_path, [(to_html(timed_report), PHONE)], DARK)
    assert set(dark["barColours"]).isdisjoint(phone["barColours"])
    assert len(set(dark["barColours"])) == len(set(phone["barColours"])) == 3


def test_it_can_be_photographed(make_report: Callable[..., Report], tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(to_html(make_report()), encoding="utf-8")
    browse(tmp_path, f"--screenshot={picture}", "--window-size=800,1200", page.as_uri())
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (800, 1200)
    assert len(data) > 20_000, "more than an empty page"
