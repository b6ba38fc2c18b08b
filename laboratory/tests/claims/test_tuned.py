"""Tuned rankings: what a search chooses, and its parts, with scores made by hand."""

import re
from dataclasses import dataclass, field

import pytest

from fedsel_app.config import ConfigError
from laboratory.claims.claim import Claim
from laboratory.claims.picture import placed
from laboratory.claims.ranking import BASELINE, Ranking
from laboratory.claims.runs import asked_runs, missing_runs
from laboratory.claims.tuned import METRIC, Tuned, at_best, standing_rankings
from laboratory.tests.claims.fakes import shipped

BASE = {"title": "T", "baseline": "a", "search_seeds": (7, 8), "fraction": 0.1, "first_seed": 11, "seed_count": 3}
ROUNDS = "accuracy_at_rounds"
PAPERS = [f"{name} ({method})" for name, method in (("Li et al. 2020", "FedProx"), ("Wang et al. 2020", "FedNova"))]
PAPERS += ["Karimireddy et al. 2020 (SCAFFOLD)", "Acar et al. 2021 (FedDyn)"]
ARMS = {"a": {"strategy": "random", "weighting": "uniform"}, "b": {"strategy": "oort"}}


@dataclass
class Scores:
    """Scores by the name of a side, its settings of `keys` and the seed, in place of measured runs."""

    of: dict
    keys: tuple = ("lr",)
    rows: dict = field(default_factory=dict)

    def values(self, study, side, seed):
        found = self.of.get((side.name, *(side.settings[key] for key in self.keys), seed), "absent")
        return None if found == "absent" else {METRIC.column: found}


@dataclass
class Both:
    """The same scores as those of the validation set and of the comparison."""

    scores: Scores
    rows: dict = field(default_factory=dict)

    def values(self, study, side, seed):
        found = self.scores.values(study, side, seed)
        return found and {study.metrics[0].column: found[METRIC.column]}


def tuned(**changes):
    made = BASE | {
        "arms": ARMS,
        "grid": {"lr": [0.1, 0.2, 0.4]},
        "measures": ("stable_accuracy",),
        "core_hours": 1.0,
        "cost": "",
    }
    return Tuned(name="t", settings={"rounds": 5}, **made | changes)


def test_each_side_gets_the_settings_with_the_best_mean_on_the_seeds_of_the_search():
    """0.5 and 0.7 beat 0.9 and 0.2; of equals the first counts; a run without a score counts as the worst."""
    scores = {("a", 0.1): (0.9, 0.2), ("a", 0.2): (0.5, 0.7), ("a", 0.4): (0.6, 0.6)}
    scores |= {("b", 0.1): (0.3, 0.3), ("b", 0.2): (0.9, None), ("b", 0.4): (0.2, 0.2)}
    measured = Scores(
        {(*key, seed): value for key, both in scores.items() for seed, value in zip((7, 8), both, strict=True)}
    )
    chosen = tuned().chosen(measured)
    assert chosen == {"a": {"lr": 0.2}, "b": {"lr": 0.1}}
    ranking = tuned().ranking(measured)
    assert [(side.name, side.strategy, dict(side.settings)) for side in ranking.sides] == [
        ("a", "random", {"weighting": "uniform", "lr": 0.2}),
        ("b", "oort", {"lr": 0.1}),
    ]
    assert (list(ranking.seeds), ranking.baseline) == ([11, 12, 13], "a")
    assert [metric.key for metric in ranking.metrics] == ["stable_accuracy"]
    assert tuned().search.on_edge(chosen["b"]) == ["lr"]
    assert tuned().search.on_edge(chosen["a"]) == []


def test_the_comparison_begins_when_every_run_of_the_search_is_measured():
    study = tuned()
    assert [stage.name for stage in study.parts(Scores({}))] == ["t, search"]
    [search] = study.parts(Scores({}))
    config = search.configuration(search.sides[0], 7)
    assert (config.partition.validation_fraction, config.training.lr, config.run.rounds) == (0.1, 0.1, 5)
    every = {(side.name, side.settings["lr"], seed): 0.5 for side in search.sides for seed in (7, 8)}
    assert len(every) == 12
    assert [stage.name for stage in study.parts(Scores(every))] == ["t, search", "t"]
    assert len(asked_runs(study.parts(Scores(every)))) == study.run_count == 18
    [*_, last] = every
    assert len(study.parts(Scores({key: value for key, value in every.items() if key != last}))) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"baseline": "c"}, "'c' is none of the sides a, b"),
        ({"first_seed": 6}, "seeds of the search must not be those of the comparison"),
    ],
)
def test_what_is_no_tuned_ranking_is_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        tuned(**changes)


def test_the_files_state_how_many_runs_they_need_and_fit_40_core_hours():
    hours = 0.0
    for study in Tuned.load():
        searched, compared = map(int, re.findall(r"(\d+) runs of the search and (\d+) of", study.cost)[0])
        assert searched + compared == study.run_count, study.name
        assert compared == len(study.arms) * study.seed_count
        seconds = float(re.findall(r"at ([\d.]+) s", study.cost)[0])
        assert study.core_hours == pytest.approx(study.run_count * seconds / 3600, rel=0.05, abs=0.01)
        hours += study.core_hours
        for side in study.sides:
            study.configuration(side, 1)
        if not study.left_open:
            assert not missing_runs(study.parts(shipped()), shipped()), study.name
    assert 0.0 < hours <= 40.0


def test_a_tuned_ranking_takes_the_place_of_the_untuned_one_when_all_its_runs_are_measured():
    """On the fresh seeds, random draws have 0.6 and Oort 1, 2 and 3 points more, at equal rounds."""
    arms = {BASELINE: ARMS["a"], "oort": {"strategy": "oort"}}
    changes = {"baseline": BASELINE, "arms": arms, "grid": {"lr": [0.1]}, "measures": (), "budgets": {ROUNDS: 5.0}}
    study = tuned(replaces="w", **changes)
    made = {"strategies": ("oort",), "variants": {BASELINE: ARMS["a"]}, "budgets": {ROUNDS: 5.0}, "seed_count": 3}
    untuned = [Ranking(name=name, title=name, **made) for name in "vw"]
    measured = Scores({(name, 0.1, seed): 0.5 for name in arms for seed in (7, 8)})
    measured.of |= {(BASELINE, 0.1, seed): 0.6 for seed in (11, 12, 13)}
    measured.of |= {("oort", 0.1, seed): 0.5 + 0.01 * seed for seed in (11, 12)}
    assert standing_rankings(untuned, [study], Both(measured)) == untuned
    measured.of["oort", 0.1, 13] = 0.63
    first, second = standing_rankings(untuned, [study], Both(measured))
    assert (first, second.name) == (untuned[0], "t")
    [places] = placed([second], ROUNDS, Both(measured)).values()
    assert {name: place.lead.mean for name, place in places.items()} == {"oort": pytest.approx(0.02)}


def test_a_claim_about_a_solver_says_that_it_is_untuned_and_what_came_out_at_the_best_rates():
    for claim in Claim.load():
        named = [study.partition("/") for study in claim.at_best]
        solvers = {claim.configuration(side, 1).training.solver for side in claim.sides}
        assert bool(named) == (claim.paper in PAPERS and len(solvers) == 2), claim.name
        for study, _, side in named:
            [tuned_study] = Tuned.load([study])
            assert tuned_study.arms[side]["solver"] == claim.configuration(claim.claimed, 1).training.solver
            assert "untuned (rate" in at_best(claim, shipped())


def test_a_search_does_not_see_the_test_set():
    for study in Tuned.load():
        assert study.search.metrics == [METRIC]
        assert study.search.configuration(study.search.sides[0], 1).partition.validation_fraction > 0.0
