"""Documentation site: it builds without a warning and loads nothing from elsewhere; its generated parts are current."""

import re
import runpy
import subprocess
import sys

import pytest

from simulation.workbench.cli import parser
from simulation.workbench.command_line.parser import EXAMPLES
from tests.support.sources import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize(("script", "made"), [("round_picture", "round.svg")])
def test_generated_files_are_current(script: str, made: str) -> None:
    """Where one differs, `python docs/scripts/SCRIPT.py` writes it anew."""
    names = runpy.run_path(str(DOCS / "scripts" / f"{script}.py"))
    text = (names.get("page") or names["picture"])()
    assert (DOCS / made).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_help_of_a_command_begins_with_its_examples(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parser().parse_args([*([] if command == "fedsel" else [command]), "--help"])
    first_screen = capsys.readouterr().out.splitlines()[:24]
    assert 1 <= len(EXAMPLES[command]) <= 3
    for line, meaning in EXAMPLES[command].items():
        place = first_screen.index(f"  {line}")
        assert first_screen[place + 1].strip() == meaning
        parser().parse_args(line.split()[1:])


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path) -> None:
    """`--strict` turns a warning into an error: a page that is in no menu, a link or an anchor that leads nowhere."""
    pytest.importorskip("mkdocs", reason="the extra 'dev' is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").glob("*.html"))
    assert len(pages) == len(list(DOCS.glob("*.md"))) + 1  # and 404.html
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|link|iframe)[^>]*?(?:src|href)=\"?(https?:[^\" >]+)", page.read_text("utf-8")
        )
        assert [address for address in loaded if "canonical" not in address] == [], page.name
