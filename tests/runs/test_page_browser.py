"""The report's page in a real browser: Debian's chromium, headless."""

import html
import json
import re
import shutil
import subprocess

import pytest

from simulation.workbench.report.page import write_report
from tests.support.report_runs import write_comparison

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]

PROBE = """<script>addEventListener("load", () => {
  const box = element => { const { width, height } = element.getBoundingClientRect(); return [width, height]; };
  const cut = element => !element.closest(".drawn") && (element.getBoundingClientRect().right > innerWidth + 0.5
    || getComputedStyle(element).display !== "inline" && element.scrollWidth > element.clientWidth + 1);
  const texts = [...document.querySelectorAll("h1, h3, p, li, th, td, figcaption")].filter(text => box(text)[0]);
  parent.postMessage(JSON.stringify({
    images: [...document.images].map(image => [image.naturalWidth, image.naturalHeight, ...box(image)]),
    captions: [...document.querySelectorAll("figcaption")].map(box),
    page: [document.documentElement.scrollWidth, innerWidth],
    cut: [...document.body.querySelectorAll("*")].filter(cut).map(element => element.outerHTML.slice(0, 80)),
    text: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    cells: [...document.querySelectorAll("td")].filter(cell => cell.textContent && box(cell)[0]).length,
    verdict: document.querySelectorAll(".verdict li").length,
    colours: [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color],
  }), "*");
});</script>"""
FRAME = """<iframe src="{}" style="width:{}px; height:900px; border:0"></iframe>
<script>addEventListener("message", event => document.body.dataset.seen = event.data)</script>"""
"""A page in a frame of any width; a window of this browser is never narrower than 500 pixels."""
FIGURE_TEXT = 10 / 72 * 144
"""Height in pixels of a figure's text of 10 points, at 144 dots an inch."""


def browse(page, *options):
    """The page's DOM and what its console said."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *options]
    command += [
        f"--user-data-dir={page.parent / 'profile'}",
        "--enable-logging=stderr",
        "--v=0",
        "--dump-dom",
        "--virtual-time-budget=5000",
    ]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def look(page, width, *options):
    """Observations of a script in a copy of the page `width` pixels wide, and the browser's console."""
    copy, frame = page.with_name("probed.html"), page.with_name("frame.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    frame.write_text(FRAME.format(copy.as_uri(), width), encoding="utf-8")
    dom, console = browse(frame, "--hide-scrollbars", *options)
    return json.loads(html.unescape(re.search(r'data-seen="([^"]*)"', dom)[1])), console


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_comparison(folder)
    write_report(folder)
    return folder / "report.html"


@pytest.mark.parametrize(("width", "scheme", "dark"), [(1280, 1, False), (390, 0, True)])
def test_everything_is_seen_and_nothing_is_cut(page, width, scheme, dark):
    seen, console = look(page, width, f"--blink-settings=preferredColorScheme={scheme}")
    assert console == []
    assert len(seen["images"]) == len(seen["captions"]) == 6
    assert min(min(image) for image in seen["images"]) > 80
    assert min(min(caption) for caption in seen["captions"]) > 10
    assert seen["page"] == [width, width], "the page itself scrolls sideways"
    assert seen["cut"] == []
    assert seen["text"] >= 14
    assert min(shown / natural for natural, _, shown, _ in seen["images"]) * FIGURE_TEXT > 10
    assert seen["cells"] == len(re.findall(r"<td[^>]*>[^<]+</td>", page.read_text(encoding="utf-8")))
    assert seen["verdict"] == 5
    background, text = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in seen["colours"])
    assert (background < text) == dark
    assert abs(background - text) > 400


def test_the_console_would_be_heard(page):
    broken = page.with_name("broken.html")
    broken.write_text("<script>console.error('it broke')</script>", encoding="utf-8")
    assert "it broke" in browse(broken)[1][0]


def test_a_screenshot_shows_ink(page):
    from matplotlib import image

    shot = page.with_name("shot.png")
    browse(page, "--window-size=1280,1600", f"--screenshot={shot}")
    pixels = image.imread(shot)[..., :3]
    assert pixels.shape[:2] == (1600, 1280)
    assert pixels.std(axis=(1, 2)).astype(bool).mean() > 0.7
