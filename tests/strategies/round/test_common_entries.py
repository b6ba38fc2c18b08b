"""The rule of common-k in whole runs: the entries and grids of each round from the replies of the rounds before."""

import numpy as np

from fedsel_app.wire.codec import decode
from fedsel_app.wire.entries import decode_entries
from tests.support.in_process import run_in_process
from tests.support.stubs import sent_payload

SMALL = {
    "model": "mlp",
    "clients": 5,
    "cohort": 4,
    "rounds": 4,
    "local_steps": 3,
    "device": "cpu",
    "strategy": "random",
}
COMMON = SMALL | {"compressor": "common-k", "kept_warmup_rounds": 0, "kept_fraction": 0.1, "seed": 7}


def played(folder, **settings):
    """Strategy and rows of a run, and of each round its stated entries and the updates by client."""
    rounds = {}

    def on_fit(client, message, reply):
        asked = message.instruction
        entries = decode_entries(asked.entries, message.model.arrays[0].size, asked.server_round)
        packet = decode(sent_payload(reply), size=entries.indices.size)
        update = entries.placed(packet.update, message.model.arrays[0].size)
        rounds.setdefault(asked.server_round, (entries, {}))[1][client] = update
        return reply

    strategy, rows = run_in_process(folder, on_fit, **COMMON | settings)
    return strategy, rows, rounds


def test_entries_and_grids_follow_from_the_rounds_before(tmp_path):
    strategy, rows, rounds = played(tmp_path)
    size = strategy.run.model.parameters.size
    change, age, exponents = np.zeros(size), np.ones(size), []
    for row in rows:
        entries, updates = rounds[row["round"]]
        count = len(entries.indices)
        scores = change * age
        exploited = min(count - round(0.5 * count), np.count_nonzero(scores))
        assert scores[entries.indices].astype(np.float32).sum() >= np.sort(scores)[::-1][:exploited].sum() * (1 - 1e-6)
        assert entries.exponent == exponents[-2] if exponents else True
        total = sum(
            weight * updates[client].dense() for client, weight in zip(row["aggregated"], row["weights"], strict=True)
        )
        change[entries.indices] = np.abs(total[entries.indices]) / age[entries.indices]
        age += 1
        age[entries.indices] = 1
        exponents = sorted(update.quantised.exponent for update in updates.values())
    assert {entries.clients for entries, _ in rounds.values()} == {4}
    assert row["uplink_bytes"] == 4 * (31 + 2 * count)
    listed = row["downlink_bytes"] / 4 - 4 * size - 28
    assert 0 < listed < 2 * count
