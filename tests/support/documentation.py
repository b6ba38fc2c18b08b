"""Documentation: README.md, CONTRIBUTING.md and the pages of docs/, with their code blocks, commands and settings."""

import re
import shlex
from dataclasses import dataclass

from tests.support.sources import ROOT

PATHS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
"""Path below the root -> text."""
README = PAGES["README.md"]
PROGRAMS = ("fedsel", "make", "flwr", "flower-superlink", "flower-supernode", "python")
SHELL = ("cat", "cp", "export", "mkdir")
"""Commands of the shell itself."""
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"<<(['\"]?)(\w+)\1\n(.*?)^\2$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """Command line of one program: its words, and the environment variables that it sets."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shlex.join([*self.variables, *self.words])


def code_blocks(page: str, *languages: str) -> list[str]:
    """Fenced blocks in one of `languages` in a page's text."""
    return [code for language, code in BLOCK.findall(page) if language in languages]


def code_spans(page: str) -> list[str]:
    """Code within the sentences and tables of a page's text, on one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", BLOCK.sub("", page))]


def written_files(page: str) -> dict[str, str]:
    """File name -> block of a page's text, in Python, or in TOML with the file's name in its first line.

    The name of a Python file is the last one before the block or in its first line.
    """
    files = {}
    for block in BLOCK.finditer(page):
        language, code = block.groups()
        if language == "python":
            named = re.findall(r"\w+\.py", page[: block.start()] + code.split("\n")[0])
            files[named[-1]] = code
        elif named := re.match(r"# (\w+\.toml)\n", code):
            files[named[1]] = code
    return files


def commands(page: str) -> list[Command]:
    """Commands of a page's text in order: first in shell blocks (after `$` in a console), then in sentences."""
    found = [command for script in code_blocks(page, "bash") for command in parse_script(script)]
    for console in code_blocks(page, "console"):
        found += parse_script("\n".join(re.findall(r"^\$ (.*)", console, re.MULTILINE)))
    for span in code_spans(page):
        if len(span.split()) > 1 and re.match(rf"(\w+=\S+ )*({'|'.join(PROGRAMS)}) ", span):
            found += parse_script(span)
    return list(dict.fromkeys(found))


def parse_script(script: str) -> list[Command]:
    """Commands of the programs in a shell script, without those of the shell itself.

    Raises
    ------
    ValueError
        For a command of a program that no test can run.
    """
    found = []
    for line in HERE_DOCUMENT.sub("", script).replace("\\\n", " ").splitlines():
        words = [word for word in shlex.split(line, comments=True) if word != "&"]
        first = next((place for place, word in enumerate(words) if not re.match(r"\w+=", word)), len(words))
        if not words[first:] or words[first] in SHELL:
            continue
        if words[first] not in PROGRAMS:
            raise ValueError(f"No test runs the program of {line!r}.")
        found.append(Command(tuple(words[first:]), tuple(words[:first])))
    return found
