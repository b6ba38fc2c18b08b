"""Requirements of a run on the user's clients: what needs no change of the client, the mod, or a function."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fedsel_app.messages.answers import Ability
from fedsel_app.messages.scalars import Report
from simulation.experiments.configuration import AppConfig

BY_FUNCTION = {Report.GRADIENT_DEVIATION: Ability.GRADIENT_DEVIATION}
"""Reports for which the user must write a function."""
BY_EVALUATE = (Report.INITIAL_LOSS,)
"""Reports that come from a client's `evaluate`."""


@dataclass(frozen=True)
class Requirement:
    """Requirement: the start of a sentence about it, and the function that meets it; None: the mod meets it."""

    subject: str
    ability: Ability | None = None


def requirements(config: AppConfig) -> Iterator[Requirement]:
    """All requirements of a run that a client without the mod does not meet."""
    needs, name = config.strategy.needs(config.method), config.run.strategy
    for report in sorted(needs.reports - set(BY_EVALUATE)):
        words = report.replace("_", " ")
        yield Requirement(f"The strategy {name} needs the {words} of the selected", BY_FUNCTION.get(report))
    if needs.label_counts:
        yield Requirement(f"The strategy {name} needs each client's label counts", Ability.LABEL_COUNTS)
    if config.training.solver == "scaffold":
        yield Requirement("The 'solver' scaffold needs clients that correct their gradients", Ability.CONTROL_VARIATES)
    if not config.compression.lossless:
        coded = f"'compressor' {config.compression.compressor}, 'value-bits' {config.compression.value_bits}"
        yield Requirement(f"Compression ({coded}) needs clients that compress")
        if config.compression.curvature_layers:
            yield Requirement("Scores by curvature ('curvature-layers') need it of the clients", Ability.CURVATURE)


def unmet(config: AppConfig, abilities: Collection[Ability] | None) -> str:
    """Sentence on the first requirement that a client with these functions does not meet; empty if it meets all.

    `abilities` are None for a client without the mod.
    """
    for requirement in requirements(config):
        if requirement.ability is not None and requirement.ability not in (abilities or ()):
            function = _app(f"{requirement.ability}=...")
            return f"{requirement.subject}, which only a function of yours tells: write {function}."
        if abilities is None:
            return f"{requirement.subject}, and a client without fedsel's line does not: write {_app()}."
    return ""


def _app(function: str = "") -> str:
    """The line that a client app needs, in both forms of client apps."""
    mod = f"selecting({function})" if function else "selecting"
    return f"fedsel_app.client_app({function}) in place of ClientApp(), or ClientApp(client_fn, mods=[{mod}])"
