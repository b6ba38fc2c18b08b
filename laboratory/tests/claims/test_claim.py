"""Claims and rankings as files: each can be run, and an invalid file is refused with its name."""

import re
from math import inf

import pytest
import tomli_w

from fedsel_app.config import ConfigError
from fedsel_app.presets.preset import load_preset
from laboratory.claims.claim import Claim
from laboratory.claims.measured import identity
from laboratory.claims.ranking import BASELINE, Ranking
from laboratory.claims.runs import asked_runs
from laboratory.presets import named as preset_named
from laboratory.tests.claims.fakes import claims, rankings, shipped

CLAIM = {
    "paper": "P",
    "source": "Table 1",
    "sentence": "A is ahead of B.",
    "published": "1 against 2",
    "scale": "protocol",
    "settings": {"weighting": "uniform"},
    "claimed": {"strategy": "oort"},
    "other": {"strategy": "random"},
    "rule": {
        "metrics": ["stable_accuracy"],
        "margin": 0.01,
        "effect": 0.02,
        "deviation": 0.02,
        "power": 0.8,
        "seeds": 10,
    },
}


def written(tmp_path, **changes):
    rule = CLAIM["rule"] | changes.pop("rule", {})
    settings = CLAIM["settings"] | changes.pop("settings", {})
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps(CLAIM | changes | {"settings": settings, "rule": rule}), encoding="utf-8")
    return path


def test_every_claim_and_ranking_has_settings_that_can_be_run():
    for study in (*claims(), *rankings()):
        configs = [study.configuration(side, 1) for side in study.sides]
        assert len({identity(config) for config in configs}) == len(study.sides), study.name
        assert len(study.seeds) >= 5, study.name


def test_arms_differ_in_nothing_that_their_file_does_not_name():
    """A side or the pipelines of a preset name each setting that differs. Weights are equal, or the sides name them."""
    for claim in claims():
        if claim.superseded:
            continue
        first, second = (claim.configuration(side, 1).values() for side in claim.sides)
        different = {key for key in first.keys() & second.keys() if first[key] != second[key]} - {"strategy"}
        named = {key for side in claim.sides for key in side.settings}
        if claim.own_pipelines:
            methods = load_preset(preset_named(claim.preset)).methods
            named |= {key for table in methods.values() for key in table.settings}
        assert different <= named, claim.name
        strategies = {side.strategy for side in claim.sides}
        if len(strategies) > 1 and not claim.own_pipelines and "method" in (first["weighting"], second["weighting"]):
            assert all("weighting" in side.settings for side in claim.sides), claim.name
    for ranking in rankings():
        assert "weighting" in ranking.settings, ranking.name
        configs = {side.name: ranking.configuration(side, 1).values() for side in ranking.sides}
        base = configs["random"]
        for side in ranking.sides:
            own = configs[side.name]
            different = {key for key in base.keys() & own.keys() if base[key] != own[key]} - {"strategy"}
            assert different <= set(side.settings), (ranking.name, side.name)


def test_no_measured_run_ended_while_its_method_was_uniform():
    for claim in claims():
        for side in claim.sides:
            uniform = 0 if claim.superseded else claim.uniform_rounds(side)
            for seed in claim.seeds if uniform else ():
                values = shipped().values(claim, side, seed) or {}
                assert (values.get("rounds_to_target") or inf) > uniform, (claim.name, side.strategy, seed)


def test_no_method_of_a_ranking_is_uniform_in_more_than_a_third_of_the_rounds():
    for ranking in rankings():
        for side in ranking.sides:
            rounds = ranking.configuration(side, 1).run.rounds
            assert ranking.uniform_rounds(side) <= rounds / 3, (ranking.name, side.name)


def test_a_run_that_two_claims_ask_for_is_one_run(tmp_path):
    accuracy = Claim.read(written(tmp_path))
    seconds = Claim.read(written(tmp_path, rule={"metrics": ["time_to_target_s"], "effect": 0.3, "deviation": 0.3}))
    runs = asked_runs([accuracy, seconds])
    assert len(runs) == 2 * 10
    assert {metric.key for metric in runs[0].metrics} == {"stable_accuracy", "time_to_target_s"}


def test_a_run_is_known_by_what_changes_its_numbers(tmp_path):
    claim = Claim.read(written(tmp_path, settings={"lr": 0.1}))
    config = claim.configuration(claim.claimed, 3)
    assert config.run.seed == 3
    name = identity(config)
    same = Claim.read(written(tmp_path, settings={"lr": 0.1, "data-path": "elsewhere", "workers": 2}))
    assert identity(same.configuration(same.claimed, 3)) == name
    for settings in ({"lr": 0.2}, {"lr": 0.1, "oort": {"explore": 0.5}}):
        other = Claim.read(written(tmp_path, settings=settings))
        assert identity(other.configuration(other.claimed, 3)) != name
    assert identity(claim.configuration(claim.claimed, 4)) != name
    assert identity(claim.configuration(claim.other, 3)) != name
    for data in ("npz", "image-folder", "hf"):
        one, two = (
            Claim.read(written(tmp_path, settings={"data": data, "data-path": path})) for path in ("mine", "yours")
        )
        assert identity(one.configuration(one.claimed, 3)) != identity(two.configuration(two.claimed, 3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale": "large"}, "'scale' must be one of protocol, reduced"),
        ({"scale": "reduced"}, "only the scale reduced has 'reduced'"),
        ({"rule": {"metrics": ["acuracy"]}}, "Did you mean 'peak_accuracy'"),
        ({"rule": {"metrics": ["stable_accuracy", "time_to_target_s"]}}, "must be costs, or scores"),
        ({"superseded": "reason"}, "'superseded' and 'superseded_by' need each other"),
        ({"rule": {"seeds": 9}}, "'seeds' must be 10 at least for the 'power' 0.8"),
        ({"second_stage": {"seeds": 10, "effect": 0.02, "deviation": 0.02, "comparisons": 4}}, "at least for the"),
        ({"second_stage": {"seeds": 10}, "again": {"seeds": 10}}, "'again' is for claims without a second stage"),
        ({"settings": {"weighting": "method"}}, "'weighting' = method gives each its own weights"),
        (
            {"claimed": {"strategy": "fedcor"}, "settings": {"rounds": 16}},
            "fedcor selects uniformly in its first 16 rounds, and a run may end by then",
        ),
        ({"verdict": "holds"}, "'verdict' is none of"),
        ({"claimed": {"lr": 0.1}}, "lacks 'strategy'"),
    ],
)
def test_a_file_that_is_no_claim_is_refused(tmp_path, changes, said):
    path = written(tmp_path, **changes)
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        Claim.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("variants", "budget", "said"),
    [
        (
            f'[variants."{BASELINE}"]\nstrategy = "random"\n',
            "peak_accuracy",
            "'peak_accuracy' is no metric with a budget",
        ),
        ("", "accuracy_at_rounds", f"'variants' lacks '{BASELINE}'"),
    ],
)
def test_a_file_that_is_no_ranking_is_refused(tmp_path, variants, budget, said):
    path = tmp_path / "r.toml"
    text = f'title = "T"\nstrategies = ["oort"]\nseed_count = 5\n[budgets]\n{budget} = 1.0\n{variants}'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(said)):
        Ranking.read(path)
