import json

import pytest

from fedsel_app.config import ConfigError
from simulation.workbench.comparison.results import RecordedComparison
from tests.support.report_runs import write_comparison, write_plan, write_run, write_runs


def test_a_comparison_is_read_whole(tmp_path):
    write_comparison(tmp_path)
    comparison = RecordedComparison.read(tmp_path)
    (group,) = comparison.groups
    assert (group.name, group.baseline, comparison.notes) == ("", "random", ())
    assert {name: [run.seed for run in runs] for name, runs in group.runs.items()} == {
        name: [1, 2, 3] for name in ("random", "hetero-select", "oort")
    }


def test_what_is_missing_or_unfinished_is_noted(tmp_path):
    """An incomplete last line is not a row. An unfinished run does not count if others are finished, and a failure does
    not if its run has finished since.
    """
    runs = [("random", seed, {}) for seed in (1, 2, 3)]
    paths = write_plan(tmp_path, runs)
    write_run(paths[0], "random", 1, [0.5, 0.6])
    write_run(paths[1], "random", 2, [0.5, 0.6, 0.7], finished=False)
    with (paths[1] / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "sel')
    failures = [{"name": f"random-s{seed}", "exit_code": 1, "message": "no memory"} for seed in (3, 1)]
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(failure) + "\n" for failure in failures))
    comparison = RecordedComparison.read(tmp_path)
    assert [run.seed for run in comparison.groups[0].all_runs] == [1]
    assert [len(run.rows) for run in comparison.runs.values()] == [2, 3]
    assert comparison.notes == (
        "random-s3 has not finished a round yet: it is not in this report.",
        "random-s3 failed: no memory",
        "random-s2 is unfinished: 3 of 3 rounds. It is left out of figures and statistics.",
    )


def test_strategies_are_compared_within_a_cell_and_one_strategy_between_cells(tmp_path):
    cells = [{"alpha": 0.1}, {"alpha": 1.0}]
    two = [(strategy, 1, cell) for strategy in ("oort", "random") for cell in cells]
    write_runs(tmp_path / "two", two, [0.5])
    groups = RecordedComparison.read(tmp_path / "two").groups
    assert [(group.name, list(group.runs), group.baseline) for group in groups] == [
        (name, ["oort", "random"], "random") for name in ("alpha=0.1", "alpha=1.0")
    ]
    one = [("oort", 1, cell) for cell in cells]
    write_runs(tmp_path / "one", one, [0.5], "oort")
    (group,) = RecordedComparison.read(tmp_path / "one").groups
    assert (group.name, list(group.runs), group.baseline) == ("", ["alpha=0.1", "alpha=1.0"], "alpha=0.1")


def test_a_key_that_one_strategy_has_makes_variants_of_it(tmp_path):
    own = [{"alpha": alpha, "oort.explore": share} for alpha in (0.1, 1.0) for share in (0.5, 0.9)]
    runs = [("random", 1, {"alpha": alpha}) for alpha in (0.1, 1.0)] + [("oort", 1, cell) for cell in own]
    write_runs(tmp_path, runs, [0.5])
    groups = RecordedComparison.read(tmp_path).groups
    assert [(group.name, list(group.runs), group.baseline) for group in groups] == [
        (name, ["random", "oort, oort.explore=0.5", "oort, oort.explore=0.9"], "random")
        for name in ("alpha=0.1", "alpha=1.0")
    ]


def test_what_cannot_be_reported_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no runs"):
        RecordedComparison.read(tmp_path)
    paths = write_plan(tmp_path, [("random", 1, {})])
    with pytest.raises(ConfigError, match="nothing to report yet"):
        RecordedComparison.read(tmp_path)
    write_run(paths[0], "random", 1, [0.5])
    (paths[0] / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read"):
        RecordedComparison.read(tmp_path)
    (tmp_path / "comparison.json").write_text('{"version": 2, "runs": []}')
    with pytest.raises(ConfigError, match="this version"):
        RecordedComparison.read(tmp_path)
    (tmp_path / "comparison.json").write_text('{"version": 1')
    with pytest.raises(ConfigError, match="cannot be read"):
        RecordedComparison.read(tmp_path)


def test_runs_of_several_folders_are_one_comparison(tmp_path):
    """`lr` differs within a method and divides the runs into cells; `mu` differs only between methods."""
    for strategy, mu in (("random", 0.0), ("oort", 0.5)):
        for lr, seed in ((0.1, 1), (0.1, 2), (0.2, 1)):
            write_run(tmp_path / f"{strategy}-{lr}-{seed}", strategy, seed, [0.5], lr=lr, mu=mu)
    sources = sorted(path for path in tmp_path.iterdir())
    found = RecordedComparison.read(tmp_path / "out", sources=sources)
    assert [group.name for group in found.groups] == ["lr=0.1", "lr=0.2"]
    seeds = {name: [run.seed for run in runs] for name, runs in found.groups[0].runs.items()}
    assert seeds == {"oort": [1, 2], "random": [1, 2]}
    assert found.kind_of(found.groups[0]) == "The methods also differ in mu."
    assert found.groups[0].methods == {"oort": "oort", "random": "random"}


def test_runs_of_a_user_s_method_with_other_settings_of_its_own_are_other_variants(tmp_path):
    """Its settings begin with its name, `mine`, and not with module:Class."""
    for seed, luck in ((1, 0.5), (1, 0.75), (2, 0.5)):
        folder = tmp_path / f"{seed}-{luck}"
        write_run(folder, "random", seed, [0.5])
        config = json.loads((folder / "config.json").read_text()) | {"strategy": "own:Mine", "mine.luck": luck}
        (folder / "config.json").write_text(json.dumps(config))
    [group] = RecordedComparison.read(tmp_path / "out", sources=sorted(tmp_path.iterdir())).groups
    seeds = {name: [run.seed for run in runs] for name, runs in group.runs.items()}
    assert seeds == {"mine.luck=0.5": [1, 2], "mine.luck=0.75": [1]}


def test_two_runs_of_one_variant_and_seed_are_refused(tmp_path):
    sources = [tmp_path / "a", tmp_path / "b"]
    for folder in sources:
        write_run(folder, "random", 1, [0.5])
    sentence = r"Leave out .*b or .*a: both are a run of random with the seed 1 and the same settings\."
    with pytest.raises(ConfigError, match=sentence):
        RecordedComparison.read(tmp_path, sources=sources)


@pytest.mark.parametrize(
    ("digests", "notes"),
    [
        ({("random", 1): "a", ("random", 2): "b", ("oort", 1): "a", ("oort", 2): "b"}, ()),
        ({("random", 1): "a", ("oort", 2): "b"}, ()),
        (
            {("random", 1): "a", ("oort", 1): "b"},
            ("Runs of one seed have different data, so that not only methods differ.",),
        ),
    ],
)
def test_runs_of_one_seed_with_different_data_have_a_note(tmp_path, digests, notes):
    """The seed decides which examples of digits are the test set, so other seeds have other data."""
    for (strategy, seed), digest in digests.items():
        write_run(tmp_path / f"{strategy}-{seed}", strategy, seed, [0.5])
        (tmp_path / f"{strategy}-{seed}" / "data.json").write_text(f'{{"digest": "{digest}"}}', encoding="utf-8")
    assert RecordedComparison.read(tmp_path / "out", sources=sorted(tmp_path.iterdir())).notes == notes


def test_a_report_in_another_folder_has_the_baseline_and_failures_of_the_comparison(tmp_path):
    """A run that has not begun does not prevent the report."""
    paths = write_plan(tmp_path / "one", [("oort", 1, {}), ("random", 1, {}), ("random", 2, {})])
    for path, strategy in zip(paths[:2], ("oort", "random"), strict=True):
        write_run(path, strategy, 1, [0.5])
    failure = {"name": "random-s2", "exit_code": 1, "message": "no memory"}
    (tmp_path / "one" / "failures.jsonl").write_text(json.dumps(failure) + "\n")
    there = RecordedComparison.read(tmp_path / "one")
    found = RecordedComparison.read(tmp_path / "out", sources=[tmp_path / "one"])
    assert found.groups[0].baseline == "random"
    assert found.notes == there.notes
    write_run(tmp_path / "two", "fedcg", 1, [0.5])
    mixed = RecordedComparison.read(tmp_path / "out", sources=[tmp_path / "one", tmp_path / "two"])
    assert mixed.groups[0].baseline == "random"
    others = [tmp_path / "two", tmp_path / "one" / "runs" / paths[0].name]
    found = RecordedComparison.read(tmp_path / "out", sources=others)
    assert (found.groups[0].baseline, found.notes) == ("fedcg", ())
