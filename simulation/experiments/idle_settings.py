"""Idle settings: a setting that cannot have an effect under the other settings is refused."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.data import DATA_SETS, HUB
from fedsel_app.config.participation import ISPConfig, SearchLossConfig


class Reading(NamedTuple):
    """Values of a setting with which another one is read: `values`, or all but these if `excluded`.

    A value that ends with a colon stands for all values that begin with it.
    """

    values: tuple[Value, ...]
    excluded: bool

    def holds(self, value: Value) -> bool:
        """True if the other setting is read with this `value`."""
        prefixes = tuple(str(named) for named in self.values if str(named).endswith(":"))
        return (value in self.values or str(value).startswith(prefixes)) != self.excluded

    def remedy(self, owner: str) -> str:
        """How to set `owner` so that the other setting is read."""
        return f"set another {owner}" if self.excluded else f"set {owner}={_typed(self.values[0])}"


Conditions = Mapping[str, Reading]
"""Setting -> values with which another setting is read; all conditions must hold."""


def only(*values: Value) -> Reading:
    """These values."""
    return Reading(values, excluded=False)


def unless(*values: Value) -> Reading:
    """All values but these."""
    return Reading(values, excluded=True)


def data(*names: str) -> Conditions:
    """The data sets `names`, and functions of users, which may read every setting of the data."""
    known = {name for name in DATA_SETS if ":" not in name} | {HUB}
    return {"data": unless(*sorted(known.difference(names)))}


SECOND_MOMENT = only("fedadam", "fedyogi", "fedadagrad")
SPARSE = {"compressor": only("top-k", "rand-k")}
CURVATURE = {"compressor": only("top-k"), "curvature-layers": unless(0)}
LOSSY = ({"compressor": unless("none")}, {"value-bits": unless(32)})
FEEDBACK = tuple(lossy | {"error-feedback": only(True)} for lossy in LOSSY)
RESIDUAL = tuple(feedback | {"error-feedback-scheme": only("ef14")} for feedback in FEEDBACK)
SEARCHES = {"participation": only("isp", "isp-ri")}
SIMULATED = {"links": only("simulated")}
HETERO_DIVERSITY = {"hetero-select.without": unless("diversity"), "hetero-select.diversity-weight": unless(0.0)}
HETERO_LOSS = {"hetero-select.without": unless("loss"), "hetero-select.loss-weight": unless(0.0)}
HETERO_REST = {"hetero-select.without": unless("fairness-staleness")}
ADDITIVE = {"hetero-select-stable.combination": only("additive")}

READ_BY: dict[str, tuple[Conditions, ...]] = {
    "image-size": (data("tiny-imagenet", "image-folder", "hf", HUB),),
    "test-fraction": (data("digits", "csv", "hf", HUB, "image-folder", "synthetic", "regression", "ecg"),),
    "synthetic-alpha": (data("synthetic"),),
    "synthetic-beta": (data("synthetic"),),
    "synthetic-clients": (data("synthetic", "regression"),),
    "regression-clusters": (data("regression"),),
    "regression-intercept": (data("regression"),),
    "ptb-xl-hz": (data("ptb-xl"),),
    "ecg-examples": (data("ecg"),),
    "normalize": ({"data": unless("regression")},),
    "moments": ({"normalize": only(True)},),
    "alpha": ({"partition": only("dirichlet", "dirichlet-by-client")},),
    "alphas": ({"partition": only("multi-dirichlet")},),
    "psi": ({"partition": only("psi-lda")},),
    "client-examples": ({"partition": only("psi-lda"), "partition-form": only("code")},),
    "missing-classes": ({"partition": only("missing-classes")},),
    "partition-form": ({"partition": only("psi-lda", "missing-classes", "dirichlet", "multi-dirichlet")},),
    "shards-per-client": ({"partition": only("shards")},),
    "holdout-class-examples": ({"holdout-fraction": unless(0.0)},),
    "lr-step-factor": ({"lr-step-rounds": unless(0)},),
    "mu": ({"solver": only("fedprox")},),
    "feddyn-alpha": ({"solver": only("feddyn")},),
    "top-k-scope": ({"compressor": only("top-k")},),
    "qsgd-levels": ({"compressor": only("qsgd")},),
    "qsgd-bucket": ({"compressor": only("qsgd")},),
    "curvature-layers": ({"compressor": only("top-k")},),
    **dict.fromkeys(
        (
            *("curvature-scale", "curvature-floor", "curvature-batch", "curvature-signs", "curvature-explore"),
            "layer-importance",
        ),
        (CURVATURE,),
    ),
    "error-feedback": LOSSY,
    "error-feedback-scheme": FEEDBACK,
    "residual-decay": RESIDUAL,
    "residual-decay-static": tuple(residual | {"residual-decay": only("static")} for residual in RESIDUAL),
    **dict.fromkeys(
        ("residual-decay-min", "residual-decay-max"),
        tuple(residual | {"residual-decay": only("adaptive")} for residual in RESIDUAL),
    ),
    **dict.fromkeys(
        ("kept-fraction", "kept-cosine", "kept-floor", "kept-min", "kept-rounding", "kept-warmup-rounds", "link-cap"),
        (SPARSE,),
    ),
    "kept-warmup-full": (SPARSE | {"kept-warmup-rounds": unless(0)},),
    "cosine-from": (SPARSE | {"kept-warmup-rounds": unless(0), "kept-cosine": unless(0.0)},),
    "allocation": (SPARSE | {"loss-clip": only(0.0)},),
    "trim-share": ({"aggregation": only("trimmed-mean")},),
    "krum-malicious": ({"aggregation": only("krum", "multi-krum")},),
    "quorum": ({"aggregation": only("median", "trimmed-mean")},),
    "update-clip": ({"aggregation": unless("mean")},),
    "max-update-norm": ({"dp-clip-norm": only(0.0)},),
    "server-momentum": ({"server-optimizer": only("momentum")},),
    "server-beta1": ({"server-optimizer": SECOND_MOMENT},),
    "server-beta2": ({"server-optimizer": only("fedadam", "fedyogi")},),
    "server-tau": ({"server-optimizer": SECOND_MOMENT},),
    "calibration-clients": ({"calibration-form": unless("training")},),
    "calibration-batches": ({"calibration-form": unless("training")},),
    "dp-noise-multiplier": ({"dp-clip-norm": unless(0.0)},),
    "dp-delta": ({"dp-clip-norm": unless(0.0)},),
    "growth-first": ({"participation": only("adafl-full", "adafl-econom")},),
    **dict.fromkeys(("growth-last", "growth-every", "growth-warmup"), ({"participation": only("adafl-econom")},)),
    **dict.fromkeys(("stages", "stage-first", "stage-last"), ({"participation": only("adafl-staged")},)),
    **dict.fromkeys(("decay-rate", "decay-last"), ({"participation": only("decay")},)),
    **dict.fromkeys((*ISPConfig.keys(), *SearchLossConfig.keys()), (SEARCHES,)),
    "isp-mix-first": (SEARCHES | {"isp-momentum": unless(1.0)},),
    "isp-rounding": (SEARCHES | {"isp-momentum": unless(1.0)},),
    "isp-relative-exponent": ({"participation": only("isp-ri")},),
    "isp-warmup-epochs": (SEARCHES | {"isp-warmup-rounds": unless(0)},),
    "isp-jury": (SEARCHES | {"isp-loss": only("clients")},),
    "isp-window": (SEARCHES | {"isp-smoothing": unless(1.0)},),
    "isp-smoothing-rule": (SEARCHES | {"isp-smoothing": unless(1.0)},),
    "link-coupling": (SIMULATED,),
    "clock-bytes": (SIMULATED,),
    "clock-probes": (SIMULATED,),
    "active-fl.cold-start": ({"active-fl.valuation": unless("current")},),
    "clustered-sampling.linkage": ({"clustered-sampling.algorithm": only(2)},),
    "delta.diversity-weight": ({"delta.rule": only("delta")},),
    "delta.variance-weight": ({"delta.rule": only("delta")},),
    "fedcor.first-steps": ({"fedcor.update-mean": only(True)},),
    "fedcor.warmup-steps": ({"fedcor.update-mean": only(False)},),
    "hetero-select.loss-weight": ({"hetero-select.without": unless("loss")},),
    "hetero-select.probe-candidates": (HETERO_LOSS | {"hetero-select.loss-source": only("probe")},),
    "hetero-select.probe-every": (HETERO_LOSS | {"hetero-select.loss-source": only("probe")},),
    "hetero-select.diversity-weight": ({"hetero-select.without": unless("diversity")},),
    "hetero-select.average-decay": (HETERO_DIVERSITY,),
    "hetero-select.average-start": (HETERO_DIVERSITY | {"hetero-select.average-decay": unless(0.0)},),
    "hetero-select.sketch-size": (HETERO_DIVERSITY,),
    "hetero-select.fairness-weight": (HETERO_REST,),
    "hetero-select.staleness-weight": (HETERO_REST,),
    "hetero-select.score-adaptive-lr-max": ({"hetero-select.score-adaptive-lr": only(True)},),
    **dict.fromkeys(
        [
            f"hetero-select-stable.{part}-weight"
            for part in ("loss", "diversity", "momentum", "fairness", "staleness", "norm")
        ],
        (ADDITIVE,),
    ),
    "oort.pacer-step-s": ({"oort.rule": only("paper")},),
    **dict.fromkeys(
        ("oort.pacer-percentile", "oort.pacer-delta", "oort.sample-window"), ({"oort.rule": only("official")},)
    ),
    **dict.fromkeys(
        ("terraform.count", "terraform.min-clients", "terraform.quartiles", "terraform.magnitude"),
        ({"terraform.iterations": unless(1)},),
    ),
}
"""Setting that only some values of others read -> alternatives; it is read if the conditions of one of them hold."""


def refuse_idle(given: Iterable[str], runs: Collection[Mapping[str, Value]]) -> None:
    """Raise ConfigError if no run reads one of the `given` settings; `runs` are the settings of each run."""
    for key in given:
        unmet = [_unmet(key, values) for values in runs if key in values]
        if unmet and all(unmet):
            owner, reading = unmet[0][0]
            chosen = sorted({_typed(values[owner]) for values in runs if not reading.holds(values[owner])})
            raise ConfigError(
                f"With {owner}={' and '.join(chosen)}, '{key}' has no effect: leave it out, or {reading.remedy(owner)}."
            )


def _unmet(key: str, values: Mapping[str, Value]) -> list[tuple[str, Reading]]:
    """The fewest conditions, over the alternatives of `key`, that do not hold; none if it is read."""
    alternatives = [
        [(owner, reading) for owner, reading in conditions.items() if not reading.holds(values[owner])]
        for conditions in READ_BY.get(key, ())
    ]
    return min(alternatives, key=len, default=[])


def _typed(value: Value) -> str:
    """Value as a user types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
