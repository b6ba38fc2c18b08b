"""Former settings, which became constants: records and presets of earlier releases may still state them."""

from collections.abc import Mapping

from fedsel_app.config.settings import ConfigError, Value

FORMER: Mapping[str, Value] = {
    "qsgd-bucket": 128,
    "curvature-scale": "literal",
    "curvature-floor": 1e-6,
    "attack-from": 1,
    "attack-until": 0,
    "top-k-scope": "global",
    "staleness-exponent": 0.5,
    "hinge-slope": 10.0,
    "hinge-lag": 4.0,
    "max-staleness": 0,
    "stages": 5,
    "stage-first": 0.1,
    "stage-last": 0.5,
    "isp-relative-exponent": 1.0,
    **{
        f"hetero-select-stable.{name}-weight": 1.0
        for name in ("loss", "diversity", "momentum", "fairness", "staleness", "norm")
    },
    "hetero-select.staleness-scale": 0.5,
    "hetero-select.sketch-size": 0,
    "hetero-select.score-adaptive-lr-max": 0.15,
    "hetero-select-stable.staleness-rounds": 20,
    "fedcvr-bolt.landmarks": 256,
    "fedcvr-bolt.normalisation": "clients",
    "fedcvr-bolt.sampled-delta": "zero",
    "fedcvr-bolt.step-from": "warm-up",
    "oort.rule": "paper",
    "oort.cutoff": 0.0,
    "oort.clip": 0.0,
    "oort.pacer-rounds": 20,
    "oort.pacer-step-s": 0.0,
    "oort.pacer-percentile": 10.0,
    "active-fl.cold-start": "probe",
    "fedcor.annealing": 0.95,
    "fedcor.history": 100,
    "fedcor.update-mean": True,
    "fedcor.warmup-steps": 150,
    "delta.rule": "delta",
    "delta.uniform-share": 0.05,
    "hics-fl.rule": "paper",
    "hics-fl.balance": 4.0,
    "divfl.gradients": "stale",
    "divfl.subsample": 1.0,
    "divfl.layers": "all",
    "clustered-sampling.algorithm": 2,
    "clustered-sampling.linkage": "average",
    "adafl.decay": 0.9,
    "fedcg.error-weight": 2.0,
    "fedcg.deadline-s": 0.0,
    "adasample.bound-offset": 0.0,
    "adasample.uniform-share": 0.1,
}
"""Key of a former setting -> its value, which every run has now."""


def without_former(values: Mapping[str, Value]) -> dict[str, Value]:
    """The `values` without former settings. Raises ConfigError if one of these has another value than now."""
    for key in values.keys() & FORMER.keys():
        if values[key] != FORMER[key]:
            raise ConfigError(
                f"Leave '{key}' out: it is no setting any more, and every run has the value {FORMER[key]!r}. Got "
                f"{values[key]!r}."
            )
    return {key: value for key, value in values.items() if key not in FORMER}
