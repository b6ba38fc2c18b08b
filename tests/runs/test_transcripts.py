"""Transcripts of README.md and docs/: every console block is what its commands print, numbers within a hundredth."""

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from simulation.workbench.cli import main
from tests.support.documentation import BLOCK, PAGES, written_files
from tests.support.transcripts import SHARE, alike

CONSOLES = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, (language, _) in enumerate(BLOCK.findall(page))
    if language == "console"
]


def test_lines_are_alike_but_for_a_hundredth_of_their_numbers():
    line = "round 5 of 5: accuracy 0.9526, 4.1 measured s, 0.010 MB sent"
    assert alike(line, "round 5 of 5: accuracy 0.9431, 17.3 measured s, 0.011 MB sent")
    assert not alike(line, "round 5 of 5: accuracy 0.9430, 4.1 measured s, 0.010 MB sent")
    assert not alike(line, "round 4 of 5: accuracy 0.9526, 4.1 measured s, 0.010 MB sent")
    assert not alike(line, "round 5 of 5: accuracy 0.9526, 4.1 measured s, 0.012 MB sent")
    assert not alike(line, "round 5 of 5: accuracy 0.9526, 4.1 simulated s, 0.010 MB sent")
    assert alike("Every run ...", "Every run reached 1")


def test_the_page_on_python_says_how_far_numbers_differ():
    assert f"differ by up to {SHARE:.0%}" in " ".join(PAGES["docs/python.md"].split())


def script_of(page, number):
    """Commands of a console block, those of the shell block before it where it shows output alone; first the programs
    that earlier shell blocks run."""
    blocks = BLOCK.findall(page)
    lines = blocks[number][1].splitlines()
    if not any(line.startswith("$ ") for line in lines):
        lines = [f"$ {line}" for line in blocks[number - 1][1].replace("\\\n", " ").splitlines() if line] + lines
    before = "".join(code for language, code in blocks[:number] if language == "bash")
    programs = re.findall(r"^python \w+\.py$", before, re.MULTILINE)
    return [f"$ {program}" for program in programs if f"$ {program}" not in lines] + lines


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), CONSOLES)
def test_a_transcript_is_what_its_commands_print(name, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for file, code in written_files(PAGES[name]).items():
        (tmp_path / file).write_text(code, encoding="utf-8")
    printed: list[str] = []
    for line in script_of(PAGES[name], number):
        if not line.startswith("$ "):
            assert any(alike(line, one) for one in printed), f"{line!r} is not in\n" + "\n".join(printed)
            continue
        program, *words = shlex.split(line[2:])
        output = io.StringIO()
        if program == "python":
            code = Path(words[0]).read_text(encoding="utf-8")
            if "datasets" in code:
                pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
            exec(compile(code, words[0], "exec"), {})
            continue
        assert program == "fedsel"
        with contextlib.redirect_stdout(output):
            assert main(words) == 0
        printed += [one.rstrip() for one in output.getvalue().splitlines()]
    assert os.getcwd() == str(tmp_path)
