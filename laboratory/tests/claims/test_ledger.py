"""Ledger: its page and its data from measured values. The committed ones follow from the committed runs."""

import csv
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from laboratory.__main__ import main
from laboratory.claims import ledger, listing
from laboratory.claims.ledger import counted, result_text, write_ledger
from laboratory.claims.measured import identity
from laboratory.claims.picture import methods_of, placed
from laboratory.claims.ranking import AHEAD, BASELINE, BEHIND, OPEN, WITHIN, Ranking, evidence, ranked_methods
from laboratory.claims.tuned import METRIC, Tuned
from laboratory.claims.verdict import NOT_RUN, decide
from laboratory.tests.claims.fakes import (
    CHEAT,
    HONEST,
    Runs,
    claim,
    claims,
    rankings,
    shipped,
    standing_rankings,
    verdicts,
)
from laboratory.tests.claims.test_tuned import tuned
from tests.support.documentation import README
from tests.support.sources import ROOT


@pytest.fixture
def decided_once(monkeypatch):
    """The ledger and the list use verdicts that were computed once."""
    for module in (ledger, listing):
        monkeypatch.setattr(module, "decide", lambda claims, measured: verdicts())


def test_the_committed_ledger_is_what_its_runs_give(tmp_path, decided_once):
    made = write_ledger(tmp_path / "docs", claims(), rankings(), shipped(), Tuned.load(), tmp_path / "laboratory")
    for path in made:
        if path.suffix != ".png":
            committed = ROOT / path.relative_to(tmp_path)
            assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8"), path.name
    assert len(made[0].read_text(encoding="utf-8").split()) <= 3000


def test_the_numbers_in_the_readme_follow_from_the_runs():
    """Each method ahead at equal bytes and at equal seconds with its points, and what is not resolved."""
    said = " ".join(README.partition("## Results")[2].partition("\n## ")[0].split())
    words = re.sub(r"<[^>]*>", "", said).split()
    assert len(words) <= 90
    standing = standing_rankings()
    first = [ranking.configuration(ranking.sides[0], 1) for ranking in standing]
    by_bytes, by_time = (placed(standing, key, shipped()) for key in ("accuracy_at_traffic_mb", "accuracy_at_time_s"))
    assert f"All {len(methods_of(by_bytes))}, tuned alike, run on one pipeline" in said
    assert len(by_bytes) == len(by_time) == len(standing) == 6
    assert {config.run.clients // config.run.cohort for config in first} == {10}
    assert {config.run.clients for config in first} == {50, 100}
    sent = {"solver": "fedprox", "compressor": "top-k", "kept-fraction": 0.2, "error-feedback": True}
    assert all(config.values()[key] == value for config in first for key, value in sent.items())
    gains = [
        {
            name: sorted(100 * own[name].lead.mean for own in places.values() if own[name].word == AHEAD)
            for name in methods_of(places)
        }
        for places in (by_bytes, by_time)
    ]
    ahead, quicker = ({name: leads for name, leads in of.items() if leads} for of in gains)
    assert set(ahead) == {"fed-cbs"}
    low, high = (f"{gain:.1f}" for gain in ahead["fed-cbs"])
    assert f"only Fed-CBS leads: by {low} and {high} points, in two of six workloads." in said
    assert max(quicker, key=lambda name: quicker[name][-1]) == "full"
    assert f"At equal seconds, `full` gains up to {quicker['full'][-1]:.1f}" in said
    hardest = [
        place for name, own in (*by_bytes.items(), *by_time.items()) if "cifar" in name for place in own.values()
    ]
    assert {place.lead.n for place in hardest} == {5}
    assert [place.word for place in hardest].count(OPEN) > len(hardest) / 2
    names = "plain-femnist-writers", "plain-shakespeare-roles", "plain-mnist-strong-skew", "plain-traffic-sites"
    plain = [ranking for one in Tuned.load(names) if (ranking := one.compared(shipped()))]
    places = placed(plain, "stable_accuracy_at_traffic_mb", shipped())
    writers, roles, skewed, sites = (own for name in names for key, own in places.items() if name in key)
    assert AHEAD not in {place.word for own in (writers, roles) for place in own.values()}
    assert "Plain FedAvg: none leads on natural clients (FEMNIST, Shakespeare)" in said
    assert (skewed["fed-cbs"].word, f"{100 * skewed['fed-cbs'].lead.mean:.1f} on skewed" in said) == (AHEAD, True)
    best = max((place for place in sites.values() if place.word == AHEAD), key=lambda place: place.lead.mean)
    assert (best.name, f"by {100 * best.lead.mean:.1f} on a generated table." in said) == ("fedcvr-bolt", True)


def test_only_statements_of_a_paper_are_counted():
    """FedBuff draws uniformly, so what other methods do with its buffer is no statement of its paper."""
    stated = {c.name: c for c in claims() if c.name.startswith("fedbuff-")}
    assert {name for name, c in stated.items() if not c.ours} == {
        "fedbuff-random-over-selection",
        "fedbuff-random-synchronous",
    }
    more = [claim("ahead", CHEAT, HONEST), replace(claim("own", CHEAT, HONEST), ours="it has no cheats")]
    assert counted(more) == more[:1]


def test_no_method_is_ahead_of_the_draws_of_the_preset_recommended_in_most_rankings():
    chosen = resolve({"preset": "recommended"})
    ahead = []
    for ranking in standing_rankings():
        (metric,) = (metric for metric in ranking.metrics if metric.key == "accuracy_at_traffic_mb")
        (baseline,) = (side for side in ranking.sides if side.name == BASELINE)
        assert baseline.strategy == chosen.run.strategy
        assert ranking.configuration(baseline, 1).aggregation.weighting == chosen.aggregation.weighting
        ahead += [place.name for place in ranked_methods(ranking, metric, shipped()) if place.word == AHEAD]
    assert max(map(ahead.count, ahead), default=0) <= len(standing_rankings()) / 2


def test_the_preset_recommended_has_the_variant_of_hetero_select_that_is_best_at_equal_bytes():
    chosen = resolve({"preset": "recommended", "strategy": "hetero-select"}).method
    for ranking in rankings():
        (metric,) = (metric for metric in ranking.metrics if metric.key == "accuracy_at_traffic_mb")
        sides = {side.name: side for side in ranking.sides}
        order = [sides[place.name] for place in ranked_methods(ranking, metric, shipped())]
        best = next(side for side in order if side.strategy == "hetero-select")
        assert ranking.configuration(best, 1).method.loss_source == chosen.loss_source == "last-fit", ranking.name


def test_the_page_discusses_every_verdict_that_did_not_come_again():
    for stated in claims():
        found, other = verdicts()[stated.name], False
        if stated.again and not stated.superseded and found.word_in("again") != NOT_RUN:
            both = zip(found.stages["first_stage"], found.stages["again"], strict=True)
            other = any(first.word != again.word for first, again in list(both)[: found.deciding])
        assert bool(stated.not_again) == other, stated.name


def test_a_plain_ranking_has_a_column_with_the_leads_at_its_largest_budgets():
    """Leads of 1, 2 and 3 points: 2 on average, and 4.303 (t, two degrees) / sqrt(3) = 2.48 to each side."""
    by_bytes, by_time = ({"a": (0.5,) * 3, "b": scores} for scores in ((0.51, 0.52, 0.53), (0.6, 0.6, 0.61)))
    scores = {5.0: by_time, 20.0: by_bytes, 10.0: by_bytes, 40.0: by_time}

    class Plain:
        rows: ClassVar = {}

        def values(self, study, side, seed):
            if study.name.endswith("search"):
                return {METRIC.column: 0.5}
            return {metric.column: scores[metric.budget][side.name][seed - 11] for metric in study.metrics}

    budgets = {"stable_accuracy_at_traffic_mb": 5.0, "stable_accuracy_at_time_s": 10.0}
    study = tuned(title="Plain: T", pipeline="plain FedAvg", budgets=budgets, factors=(1.0, 4.0), measures=())
    text = "\n".join(ledger._plain_rankings([study], Plain()))
    assert text.startswith("## Plain FedAvg")
    assert "edge of the grid for 2 of 2 sides in T." in text
    assert "| side | T, 3 seeds: 20 MB, 40 s |" in text
    assert "| b | ·+2.0±2.5 ▲+10.3±1.4 |" in text


def test_every_measured_run_belongs_to_a_study():
    parts = [part for tuned in Tuned.load() for part in tuned.parts(shipped())]
    asked = {
        identity(study.configuration(side, seed))
        for study in (*claims(), *rankings(), *parts)
        for side in study.sides
        for seed in study.seeds
    }
    assert set(shipped().rows) <= asked


def test_a_claim_has_a_row_with_both_sides(tmp_path):
    """Means 0.7555 and 0.761 - 0.7055: the paired differences are 0.05 + 0.001 s, 5.55 points on average."""
    scores = {HONEST: {seed: 0.70 + 0.001 * seed for seed in range(1, 11)}}
    scores[CHEAT] = {seed: 0.75 + 0.002 * seed for seed in range(1, 11)}
    three = [claim("ahead", CHEAT, HONEST), claim("behind", HONEST, CHEAT), claim("absent", "divfl", HONEST)]
    page, *files = write_ledger(tmp_path, three, [], Runs(scores))
    [of_claims, of_rankings, meanings] = [path for path in files if path.suffix == ".csv"]
    first, second, third = csv.DictReader(of_claims.open(encoding="utf-8"))
    expected = {"pairs": "10", "claimed mean": "0.761", "other mean": "0.7055", "ahead on": "10", "verdict": "holds"}
    assert expected.items() <= first.items()
    assert (float(first["advantage"]), second["verdict"], third["verdict"]) == (0.0555, "does not hold", "not run")
    assert "| 5.55 points [5.33, 5.77]: holds, -5.55 points [-5.77, -5.33]: does not hold, not run |" in (
        page.read_text(encoding="utf-8")
    )
    columns = [next(csv.reader(path.open(encoding="utf-8"))) for path in (of_claims, of_rankings)]
    assert [row["column"] for row in csv.DictReader(meanings.open(encoding="utf-8"))] == [*columns[0], *columns[1]]


def test_what_a_paper_does_not_count_stands_beside_its_verdict():
    """Values sent up are halved and all traffic is ten times as much: the claim holds as stated."""
    cost = {"uplink_value_to_target_mb": 1.0, "traffic_to_target_mb": 10.0, "uplink_value_mb": 9.0, "traffic_mb": 99.0}
    other = cost | {"uplink_value_to_target_mb": 2.0, "traffic_to_target_mb": 1.0}
    own = [{key: value * (1 + 0.01 * seed) for key, value in cost.items()} for seed in range(1, 11)]
    rule = {"uncounted": ("traffic_to_target_mb",), "effect": 0.5, "deviation": 0.4}
    stated = claim("c", CHEAT, HONEST, "uplink_value_to_target_mb", **rule)
    runs = Runs({CHEAT: dict(enumerate(own, 1)), HONEST: dict.fromkeys(range(1, 11), other)})
    found = decide([stated], runs)["c"]
    assert (found.word, [verdict.word for verdict in found.verdicts]) == ("holds", ["holds", "does not hold"])
    alone = decide([replace(stated, rule=replace(stated.rule, uncounted=()))], runs)["c"]
    assert found.verdicts[0].seeds_needed > alone.verdicts[0].seeds_needed  # both tests are adjusted
    assert result_text(found).endswith(": holds as stated (10.5 times the bytes with downloads and probes)")


@dataclass
class Named:
    """Scores by the name of a side and by seed, in place of measured runs."""

    scores: dict

    def values(self, study, side, seed):
        found = self.scores.get(side.name, {}).get(seed)
        return None if found is None else {metric.column: found for metric in study.metrics}


def ranking(name="w", key="accuracy_at_rounds", **changes):
    changes = {"settings": {"rounds": 50}, "variants": {}} | changes
    variants = {BASELINE: {"strategy": "random", "weighting": "uniform"}} | changes.pop("variants")
    strategies = ("random", "oort", "divfl", "delta")
    made = {"strategies": strategies, "budgets": {key: 5}, "seed_count": 5, "variants": variants}
    return Ranking(name=name, title=name, **made | changes)


NOISE = np.array([0.00, 0.01, -0.01, 0.02, -0.02])
SCORES = {
    name: dict(enumerate(values, start=1))
    for name, values in {
        BASELINE: 0.80 + NOISE,
        "random": 0.70 - NOISE,
        "oort": 0.80 - 2 * NOISE,
        "divfl": 0.801 + NOISE + 0.001 * np.array([1, -1, 1, -1, 0]),
        "delta": 0.90 + NOISE + 0.001 * np.array([1, -1, 1, -1, 0]),
    }.items()
}
"""delta leads by 10 points, divfl by 0.1 with little noise, oort by 0 with much noise, and random trails by 10."""


def test_a_method_of_a_ranking_is_compared_with_the_baseline():
    (metric,) = ranking().metrics
    found = ranked_methods(ranking(), metric, Named(SCORES))
    expected = [("delta", AHEAD), ("divfl", WITHIN), (BASELINE, ""), ("oort", OPEN), ("random", BEHIND)]
    assert [(place.name, place.word) for place in found] == expected
    assert found[0].lead.mean == pytest.approx(0.1)
    fewer = SCORES | {"divfl": {seed: score for seed, score in SCORES["divfl"].items() if seed != 3}}
    assert [place.accuracy.n for place in ranked_methods(ranking(), metric, Named(fewer))] == [4] * 5
    assert ranked_methods(ranking(), metric, Named({})) == []


def test_the_evidence_of_a_method_over_all_workloads():
    """One of five seeds is 0.3 behind: of the 32 choices of signs, 10 have as large a sum of ranks as 1 to 4."""
    (metric,) = ranking().metrics
    lead = np.array([0.1, 0.11, 0.09, 0.1, -0.3])
    scores = SCORES | {"oort": dict(enumerate(0.8 + NOISE + lead, 1))}
    places = {place.name: place for place in ranked_methods(ranking(), metric, Named(scores))}
    assert (places["delta"].hangs_on, places["oort"].hangs_on, places["oort"].word) == (0, 0, OPEN)
    assert places["oort"].p_ranks == pytest.approx(0.625)
    assert places["delta"].deviation == pytest.approx(0.001)
    assert places["delta"].needed < places["oort"].needed
    three = SCORES | {"oort": dict(enumerate(0.8 + NOISE[:3] + np.array([0.01, 0.011, 0.009]), 1))}
    [few] = [place for place in ranked_methods(ranking(), metric, Named(three)) if place.name == "oort"]
    assert (few.word, few.hangs_on) == (AHEAD, 3)  # t = 17 with 2 degrees of freedom, at most 21 with one
    of = {workload: {name: places[name] for name in ("delta", "random")} for workload in "ab"}
    found = evidence(of)["delta"]
    assert (found.lead.mean, found.lead.n) == (pytest.approx(0.1), 2)
    assert found.p["a"] == pytest.approx(4 * places["delta"].p)


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
        (["claims", "run", "--out", "x"], "takes the names of claims"),
        (["claims", "run", "fedcor-randum", "--out", "x"], "Did you mean 'fedcor-random'?"),
        (["claims", "run", "fedcor-random", "--out", "x", "--set", "lr=0.1"], "The claims fix 'lr'."),
        (["claims", "--runs", "nowhere"], "There are no measured runs in"),
    ],
)
def test_wrong_arguments_are_told(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
