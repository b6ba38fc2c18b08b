"""Documentation: its links, presets, settings and method table are true of the code."""

import re

import pytest
import torch

from fedsel_app.config.server import PLAIN_MODELS
from fedsel_app.models.architectures import ARCHITECTURES
from fedsel_app.models.building import build
from fedsel_app.presets.preset import preset_files
from fedsel_app.wiring.configuration import known_defaults, resolve
from simulation.workbench.command_line.parser import parse_setting
from simulation.workbench.report.commands import method_rows
from strategies import STRATEGIES
from tests.support.documentation import PAGES, README, code_spans, commands, written_files
from tests.support.sources import ROOT


def test_the_method_table_is_the_registry() -> None:
    """Each method stands once, in the row of something that it must know."""
    table = README.split("<!-- methods:")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| (`.+) \| ([^|]+) \|$", table, re.MULTILINE)
    of_row = {name: needs for needs, methods, _ in rows for name in code_spans(methods)}
    registered = {name: needs for name, _, needs in method_rows(STRATEGIES.values())}
    assert of_row.keys() == registered.keys()
    for name, needs in of_row.items():
        assert needs.replace("a number", "") in registered[name]


def test_the_table_of_models_has_every_model_and_its_parameters() -> None:
    rows = re.findall(r"^\| (`[^`]+`) \| (\w+) \| .+ \| ([\d,]+) \|$", PAGES["docs/model.md"], re.MULTILINE)
    assert sorted(rows) == sorted(
        (f"`{name}`", architecture.samples, f"{parameters(name):,}") for name, architecture in ARCHITECTURES.items()
    )


def parameters(model: str) -> int:
    """Parameters of a model for its `samples`."""
    with torch.device("meta"):
        return sum(weights.numel() for weights in build(model, *samples(model), seed=0).parameters())


def samples(model: str) -> tuple[tuple[int, ...], int]:
    """MNIST's images and 10 classes, or 12 leads and 6 labels."""
    return ((12, 1000), 6) if ARCHITECTURES[model].samples == "signals" else ((1, 28, 28), 10)


def test_calibration_is_idle_for_the_models_without_statistics() -> None:
    with torch.device("meta"):
        models = {name: build(name, *samples(name), seed=0) for name in ARCHITECTURES}
    normed = {name for name, model in models.items() if any("running" in buffer for buffer, _ in model.named_buffers())}
    assert ARCHITECTURES.keys() - normed == {*PLAIN_MODELS}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """Relative links and pictures exist, and a page that is linked to has the heading after `#`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[name]):
        path, _, heading = target.partition("#")
        if path.startswith("https://"):
            continue
        linked = ((ROOT / name).parent / path if path else ROOT / name).resolve()
        assert linked.is_file(), f"{name}: {target}"
        if heading:
            titles = re.findall(r"^#+ (.+)", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], target


def test_every_page_is_linked_from_the_index() -> None:
    others = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/") and name != "docs/index.md"]
    assert [name for name in others if f"]({name})" not in PAGES["docs/index.md"]] == []


@pytest.mark.parametrize("name", PAGES)
def test_named_presets_exist(name: str) -> None:
    named = {
        word
        for command in commands(PAGES[name])
        for flag, word in zip(command.words, command.words[1:], strict=False)
        if flag == "--preset"
    }
    named |= set(re.findall(r"`--preset ([a-z0-9-]+)`", PAGES[name]))
    of_tunings = {word for word in named if word.endswith("/tuned.toml")}
    of_laboratory = {word for word in named if word.startswith("laboratory/presets/") and (ROOT / word).is_file()}
    assert named - of_tunings - of_laboratory <= {*preset_files(), *written_files(PAGES[name])}


@pytest.mark.parametrize("name", PAGES)
def test_named_settings_exist(name: str) -> None:
    """`key=value` in a sentence, and every key in a table's column "setting" or "settings"."""
    for span in code_spans(PAGES[name]):
        if re.fullmatch(r"[a-z][a-z0-9.-]*=\S+", span):
            resolve(dict([parse_setting(span)]))
    for table in re.findall(r"^\|.*\n(?:\|.*\n)+", PAGES[name], re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        for column, title in enumerate(header):
            if title in ("setting", "settings"):
                keys = {key for row in rows for key in code_spans(row[column])}
                assert keys <= set(known_defaults())


@pytest.mark.parametrize("name", PAGES)
def test_named_folders_and_files_exist(name: str) -> None:
    for span in code_spans(PAGES[name]):
        if re.fullmatch(r"(fedsel_app|strategies|clients|simulation|tests|docs)/[\w./]*", span):
            assert (ROOT / span).exists(), f"{name}: {span}"


def test_the_axes_list_every_choice_of_their_settings() -> None:
    rows = re.findall(r"^\| [^|]+ \| `([a-z-]+)` \| (`.+) \|$", PAGES["docs/methods.md"], re.MULTILINE)
    assert len(rows) >= 9
    for key, choices in rows:
        with pytest.raises(ValueError, match="must be one of") as refused:
            resolve({key: "neither"})
        listed = str(refused.value).split("must be one of ")[1].split(". Got")[0]
        assert code_spans(choices) == listed.split(", "), key
