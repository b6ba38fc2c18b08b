"""Ledger: its opening, tables and rules from measured values. The committed ledger follows from the committed runs."""

import re
from dataclasses import dataclass, replace
from math import isfinite

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.cli import main
from simulation.laboratory.claims import ledger, listing
from simulation.laboratory.claims.ledger import ranking_table, summary, write_ledger
from simulation.laboratory.claims.measured import identity
from simulation.laboratory.claims.ranking import Ranking, advice, places, ranking_advice
from simulation.laboratory.claims.verdict import DECIDED, NOT_RUN
from tests.support.claims import CHEAT, HONEST, Runs, claim, claims, rankings, shipped, verdicts
from tests.support.sources import ROOT


@pytest.fixture
def decided_once(monkeypatch):
    """The ledger and the list use verdicts that were computed once."""
    for module in (ledger, listing):
        monkeypatch.setattr(module, "decide", lambda claims, measured: verdicts())


def test_the_committed_ledger_is_what_its_runs_give(tmp_path, decided_once):
    _, markdown, _ = write_ledger(tmp_path, claims(), rankings(), shipped())
    assert markdown.read_text(encoding="utf-8") == (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")


def test_the_readme_says_what_the_ledger_says():
    """The README's paragraph after the marker begins with the ten sentences of the ledger."""
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split("<!-- ledger")[1].split("-->")[1].split())
    outcome = summary(claims(), rankings(), verdicts(), shipped())
    assert said.replace("](docs/ledger.md)", "").removeprefix("[").startswith(outcome)
    assert len(re.findall(r"[.](?: |$)", outcome)) == 10


def test_the_preset_recommended_selects_with_the_first_at_equal_bytes():
    sentence, *_ = advice(rankings(), shipped())
    assert f", use {resolve({'preset': 'recommended'}).run.strategy}, " in sentence


def test_the_preset_recommended_has_the_variant_of_hetero_select_that_is_best_at_equal_bytes():
    chosen = resolve({"preset": "recommended", "strategy": "hetero-select"}).method
    for ranking in rankings():
        (metric,) = (metric for metric in ranking.metrics if metric.key == "accuracy_at_traffic_mb")
        sides = {side.name: side for side in ranking.sides}
        order = [sides[place.strategy] for place in places(ranking, metric, shipped())]
        best = next(side for side in order if side.strategy == "hetero-select")
        assert ranking.configuration(best, 1).method.loss_source == chosen.loss_source == "last-fit", ranking.name


def test_at_least_24_claims_are_decided_or_shown_undecidable_with_five_seeds_each():
    settled = [
        found
        for found in verdicts().values()
        if found.word in DECIDED or (found.word != NOT_RUN and isfinite(found.seeds_needed))
    ]
    assert sum(found.verdicts[0].pairs.advantages.size >= 5 for found in settled) >= 24


def test_the_page_discusses_every_verdict_that_did_not_come_again():
    for stated in claims():
        found, other = verdicts()[stated.name], False
        if stated.again and not stated.superseded and found.word_in("again") != NOT_RUN:
            both = zip(found.stages["first_stage"], found.stages["again"], strict=True)
            other = any(first.word != again.word for first, again in list(both)[: found.deciding])
        assert bool(stated.not_again) == other, stated.name


def test_every_measured_run_belongs_to_a_study():
    asked = {
        identity(study.configuration(side, seed))
        for study in (*claims(), *rankings())
        for side in study.sides
        for seed in study.seeds
    }
    assert set(shipped().rows) <= asked


def test_the_opening_names_verdicts_and_the_page_shows_both_sides(tmp_path):
    scores = {HONEST: {seed: 0.70 + 0.001 * seed for seed in range(1, 11)}}
    scores[CHEAT] = {seed: 0.75 + 0.002 * seed for seed in range(1, 11)}
    three = [claim("ahead", CHEAT, HONEST), claim("behind", HONEST, CHEAT), claim("absent", "divfl", HONEST)]
    page, markdown, picture = write_ledger(tmp_path, three, [], Runs(scores))
    text = markdown.read_text(encoding="utf-8")
    counts = "1 holds, 1 does not hold, 1 not run"
    assert text.splitlines()[2].startswith(f"3 claims of the papers: {counts}. ")
    assert f"- **Baselines:** {counts}. These hold: ahead." in text.splitlines()
    # Means 0.7555 and 0.761 - 0.7055: the paired differences are 0.05 + 0.001 s, 5.55 points on average.
    assert (
        "| ahead: S. | 1 | 1 | accuracy, mean of the last ten evaluations | 0.761 | 0.7055 | 5.55 points [5.33, 5.77] |"
        in text
    )
    assert "ahead: S." in page.read_text(encoding="utf-8")
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_a_ranking_tells_who_is_tied_with_the_first():
    ranking = Ranking(
        name="r", title="T", strategies=("oort", "random", "divfl"), budgets={"accuracy_at_rounds": 5}, seed_count=5
    )
    (metric,) = ranking.metrics
    noise = (0.00, 0.01, -0.01, 0.02, -0.02)
    values = {
        "oort": {seed: 0.80 + noise[seed - 1] for seed in ranking.seeds},
        "random": {seed: 0.80 - noise[seed - 1] - 0.001 for seed in ranking.seeds},
        "divfl": {seed: 0.70 + noise[seed - 1] for seed in ranking.seeds},
    }
    found = places(ranking, metric, Runs(values))
    assert [(place.strategy, place.behind) for place in found] == [("oort", False), ("random", False), ("divfl", True)]
    assert ranking_advice(ranking, Runs(values)) == "After 5 rounds, oort is first (0.800; random 0.799, tied)."
    del values["divfl"][3]
    assert [place.accuracy.n for place in places(ranking, metric, Runs(values))] == [4, 4, 4]
    assert places(ranking, metric, Runs({})) == []


def test_a_ranking_says_who_selects_uniformly_at_first():
    strategies = ("random", "fedcvr-bolt")
    ranking = Ranking(
        name="r",
        title="T",
        strategies=strategies,
        budgets={"accuracy_at_rounds": 5},
        seed_count=5,
        settings={"rounds": 50},
    )
    values = {name: dict.fromkeys(ranking.seeds, 0.8) for name in strategies}
    caption = ranking_table(ranking, Runs(values)).caption
    assert caption.endswith(" fedcvr-bolt selects uniformly in the first 30 of 50 rounds.")
    quick = replace(ranking, settings={"fedcvr-bolt.warmup-rounds": 0})
    assert "uniformly" not in ranking_table(quick, Runs(values)).caption
    assert ranking_table(replace(quick, note="As told."), Runs(values)).caption.endswith(" As told.")


@dataclass
class Named:
    """Scores by the name of a side, in place of measured runs."""

    scores: dict

    def values(self, study, side, seed):
        found = self.scores.get(side.name)
        return None if found is None else {study.metrics[0].column: found + 0.001 * seed}


def test_a_variant_is_told_by_its_name_once_it_was_run():
    ranking = Ranking(
        name="r",
        title="T",
        strategies=("random", "oort"),
        budgets={"accuracy_at_rounds": 5},
        seed_count=5,
        variants={
            "random (equal weights)": {"strategy": "random", "weighting": "uniform"},
            "random (more steps)": {"strategy": "random", "local-steps": 100},
        },
    )
    scores = {"random": 0.8, "oort": 0.7, "random (equal weights)": 0.9}
    (metric,) = ranking.metrics
    assert places(ranking, metric, Named(scores))[0].strategy == "random (equal weights)"
    del scores["random (equal weights)"]
    assert [place.strategy for place in places(ranking, metric, Named(scores))] == ["random", "oort"]
    assert ranking_table(ranking, Named(scores)).caption.endswith(
        " Not run yet: random (equal weights); random (more steps)."
    )


def test_advice_over_rankings_counts_where_a_method_is_first_or_tied():
    """In workload w, oort and random differ by noise, and divfl is behind. In v, random is behind the other two."""
    noise = (0.00, 0.01, -0.01, 0.02, -0.02)
    w = {"oort": (0.8, 1), "random": (0.799, -1), "divfl": (0.7, 1)}
    v = {"oort": (0.8, 1), "random": (0.6, 1), "divfl": (0.801, -1)}
    values = {
        name: {
            seed: {f"accuracy_at_rounds={budget}": of[name][0] + of[name][1] * noise[seed - 1] for budget, of in
                   ((5, w), (6, v))}
            for seed in range(1, 6)
        }
        for name in w
    }  # fmt: skip
    both_rankings = [
        Ranking(name=name, title=name, strategies=tuple(w), budgets={"accuracy_at_rounds": budget}, seed_count=5)
        for name, budget in (("w", 5), ("v", 6))
    ]
    # Random selection is 0.1 points behind the first in w and 20.1 in v, and significantly ahead of divfl in w.
    (both,), (second,) = advice(both_rankings, Runs(values)), advice(both_rankings[1:], Runs(values))
    assert both == (
        "Where only rounds count, use oort: first, or not significantly behind the first, in 2 of 2 workloads. A "
        "method is significantly more accurate than random selection in 1 of 2 workloads (v), and the first is 10.1 "
        "points ahead of it on average."
    )
    assert second.startswith("Where only rounds count, use divfl or oort: first, ")
    assert second.endswith(" in 1 of 1 workloads, and the first is 20.1 points ahead of it on average.")
    (most,) = advice([*both_rankings, replace(both_rankings[1], name="u")], Runs(values))
    assert " than random selection in 2 of 3 workloads (not in w), and " in most
    assert advice(both_rankings, Runs({})) == []


def test_the_list_has_a_line_a_claim(capsys, decided_once):
    assert main(["claims"]) == 0
    said = capsys.readouterr().out
    for study in (*claims(), *rankings()):
        assert study.name[:20] in said
    standing = [claim for claim in claims() if not claim.superseded]
    assert f"{len(standing)} claims, " in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["claims", "run", "--out", "x"], "takes names from the list of `fedsel claims`, or --all"),
        (["claims", "run", "fedcor-randum", "--out", "x"], "Did you mean 'fedcor-random'?"),
        (["claims", "run", "fedcor-random", "--out", "x", "--set", "lr=0.1"], "The claims fix 'lr'."),
        (["claims", "--runs", "nowhere"], "There are no measured runs in"),
    ],
)
def test_wrong_arguments_are_told(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
