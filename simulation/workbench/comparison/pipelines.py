"""Pipelines of compared methods: the shared settings in which the methods differ, and the kind of comparison.

Either only the method differs, or each method has the compressor, error feedback, weights, server step and so on of its
own paper, from ``[methods.NAME]`` of the preset. The settings of the runs show which of the two it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fedsel_app.config import DECLARED, Value
from fedsel_app.presets.preset import Preset
from simulation.workbench.catalogue.pipeline import OWN, equal
from simulation.workbench.catalogue.protocols import protocol_of


@dataclass(frozen=True)
class Pipelines:
    """Pipelines that a preset gives the methods of a comparison.

    Attributes
    ----------
    papers : strategy -> citation of the protocol that its settings follow
    overridden : settings of these pipelines that the comparison sets for every method
    """

    papers: Mapping[str, str] = field(default_factory=dict)
    overridden: Sequence[str] = ()


def pipelines_of(preset: Preset, strategies: Sequence[str], given: Collection[str]) -> Pipelines:
    """Pipelines of `preset` for the `strategies` of a comparison that sets the keys `given` for all of them."""
    methods = preset.methods or {}
    tables = {name: methods[name] for name in strategies if name in methods}
    cited = [name for name, table in tables.items() if table.protocols]
    if tables and preset.protocols and preset.settings.get("strategy") in strategies:
        cited.append(str(preset.settings["strategy"]))
    papers = {name: protocol_of(preset.of_method(name)).cite for name in strategies if name in cited}
    return Pipelines(papers, sorted({key for table in tables.values() for key in table.settings} & set(given)))


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


def comparison_kind(configs: Mapping[str, Mapping[str, Value]], swept: Collection[str], pipelines: Pipelines) -> str:
    """Sentence on what the methods of a comparison share; empty for a single method.

    `configs` and `swept` are those of `differing_settings`.
    """
    if len(configs) < 2:
        return ""
    differing = differing_settings(configs, swept)
    if not any(differing.values()):
        return f"{equal(next(iter(configs.values())))}."
    if not pipelines.papers:
        return "Each method with settings of its own."
    without = [name for name in differing if name not in pipelines.papers]
    exception = f", except {', '.join(without)}, for which the preset has none" if without else ""
    overridden = f"; {', '.join(pipelines.overridden)} set for all" if pipelines.overridden else ""
    return f"{OWN}{exception}{overridden}."
