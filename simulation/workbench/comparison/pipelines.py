"""Pipelines of compared methods: the shared settings in which the methods differ."""

from collections.abc import Collection, Mapping

from fedsel_app.config import DECLARED, Value


def differing_settings(
    configs: Mapping[str, Mapping[str, Value]], swept: Collection[str]
) -> dict[str, dict[str, Value]]:
    """Strategy -> its values of the shared settings in which the strategies differ, without the `swept` ones.

    `configs` has all settings of one run of each strategy.
    """
    common = set.intersection(*(set(values) for values in configs.values())) - set(swept)
    keys = [key for key, entry in DECLARED.items() if key in common and entry.scope.numbers and not entry.own]
    different = [key for key in keys if len({repr(values[key]) for values in configs.values()}) > 1]
    return {name: {key: values[key] for key in different} for name, values in configs.items()}


def comparison_kind(configs: Mapping[str, Mapping[str, Value]], swept: Collection[str]) -> str:
    """Sentence on what the methods of a comparison share; empty for a single method.

    `configs` and `swept` are those of `differing_settings`.
    """
    if len(configs) < 2:
        return ""
    first, *_ = configs
    if keys := differing_settings(configs, swept)[first]:
        return f"The methods also differ in {', '.join(keys)}."
    weighs = ", which also weighs the updates" if configs[first].get("weighting") == "method" else ""
    return f"Everything equal but the method{weighs}."
