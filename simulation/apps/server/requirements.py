"""Requirements of a run on the user's clients: what needs no change of the client, fedsel's line, or a function."""

from collections.abc import Collection, Iterator

from fedsel_app.messages.answers import Ability
from fedsel_app.messages.scalars import Report
from fedsel_app.wiring.configuration import AppConfig

LINE = "fedsel_app.client_app({}) in place of ClientApp()"


def requirements(config: AppConfig) -> Iterator[tuple[str, Ability | None]]:
    """All requirements of a run that a client without fedsel's line does not meet.

    Each is the end of a sentence about it, and the function that meets it; None: the line meets it.
    """
    needs, name = config.strategy.needs(config.method), config.run.strategy
    for report in sorted(needs.reports - {Report.INITIAL_LOSS}):  # this one comes from a client's `evaluate`
        ability = Ability.GRADIENT_DEVIATION if report == Report.GRADIENT_DEVIATION else None
        yield f"the strategy {name} needs the {report.replace('_', ' ')} of the selected", ability
    if needs.label_counts:
        yield f"the strategy {name} needs each client's label counts", Ability.LABEL_COUNTS
    if not config.compression.lossless:
        coded = f"'compressor' {config.compression.compressor}, 'value-bits' {config.compression.value_bits}"
        yield f"compression ({coded}) needs clients that compress", None


def unmet(config: AppConfig, abilities: Collection[Ability] | None) -> str:
    """Sentence on the first requirement that a client with these functions does not meet; empty if it meets all.

    `abilities` are None for a client without fedsel's line.
    """
    for subject, ability in requirements(config):
        if ability is not None and ability not in (abilities or ()):
            return f"Write {LINE.format(f'{ability}=...')}: {subject}, which only a function of yours tells."
        if abilities is None:
            return f"Write {LINE.format('')}: {subject}, and this client's app lacks fedsel's line."
    return ""
