"""Epsilon of ten private runs beside the accountants of opacus and of Flower: the table of docs/security.md.

``python -m tests.bench.epsilon`` prints it. Flower's accountant needs the package dp-accounting. PRV is opacus'
numerical accountant (S. Gopi, Y. T. Lee, L. Wutschitz, NeurIPS 2021), whose epsilon is almost exact; the other two add
Rényi divergences, which gives an upper bound.
"""

from typing import NamedTuple

from fedsel_app.config import PrivacyConfig
from fedsel_app.records.releases import Releases
from strategies.aggregation.privacy import Privacy

CLIENTS = 20


class Setting(NamedTuple):
    """Settings of a run: noise multiplier, number of releases, delta."""

    noise: float
    releases: int
    delta: float


SETTINGS = [
    *map(Setting, (0.5, 0.7, 1.0, 1.0, 1.0), (1, 3, 1, 10, 14), (1e-5,) * 5),
    *map(Setting, (1.5, 2.0, 4.0, 8.0, 20.0), (50, 40, 100, 500, 1000), (1e-6, 1e-5, 1e-5, 1e-7, 1e-4)),
]
HEADINGS = ("`dp-noise-multiplier`", "releases", "`dp-delta`", "fedsel", "opacus, RDP", "Flower, RDP", "opacus, PRV")


def of_fedsel(of: Setting) -> float:
    """Epsilon that a run tells."""
    releases = Releases()
    releases.count = of.releases
    return Privacy(PrivacyConfig(1.0, of.noise, of.delta), releases).epsilon()


def of_opacus(of: Setting) -> float:
    """Epsilon of opacus' accountant, told of every release by itself."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    for _ in range(of.releases):
        accountant.step(noise_multiplier=of.noise, sample_rate=1.0)
    return float(accountant.get_epsilon(of.delta))


def of_flower(of: Setting) -> float:
    """Epsilon of Flower's accountant."""
    from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod

    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    accountant = RdpAccountant(PrivacyConfig(of.delta, CLIENTS, relation, sampling))
    accountant.compose(GaussianPrivacyEvent(of.noise, CLIENTS, CLIENTS), of.releases)
    return float(accountant.get_epsilon(of.delta))


def of_prv(of: Setting) -> float:
    """Epsilon of opacus' numerical accountant."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(of.noise, 1.0, of.releases)]
    return float(accountant.get_epsilon(of.delta, eps_error=0.01))


def main() -> None:
    """Print the table."""
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for of in SETTINGS:
        epsilons = (told(of) for told in (of_fedsel, of_opacus, of_flower, of_prv))
        print(f"| {of.noise:g} | {of.releases} | {of.delta:g} | {' | '.join(f'{one:.4f}' for one in epsilons)} |")


if __name__ == "__main__":
    main()
