"""The clock beside a loop of one page, written from docs/clock.md alone: ninety random federations."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import AvailabilityConfig, NetworkConfig, TrainingConfig
from fedsel_app.network.availability import Diurnal
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.wire.codec import Update, whole_bytes
from tests.strategies.test_under_way import BUFFERED, Lowest
from tests.support.contexts import SIZE, context_of
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient, round_of, update_reply

UPDATE = Update(SIZE, None, np.ones(SIZE, np.float32))
BITS = [32.0 * SIZE, 0.0, 8.0 * whole_bytes(UPDATE)]
"""Bits of the model, and of the payload of an update, by the stage of a way."""


class Stay:
    """Presence of a client: it is there from `begin` to `end` of each period."""

    def __init__(self, begin, end, period):
        self.stays = [(begin + place * period, end + place * period) for place in range(-1, 200)]

    def at(self, time):
        return any(begin <= time < end for begin, end in self.stays)

    def next_change(self, time):
        return min(edge for stay in self.stays for edge in stay if edge > time)

    def next_begin(self, time):
        return time if self.at(time) else min(begin for begin, _ in self.stays if begin > time)


class Way:
    """A client's way: seconds of its own link, bits of the server's, seconds of computing, and back."""

    def __init__(self, client, round_number):
        self.client, self.round = client, round_number


def reference(case, rounds):
    """The rounds of a case, by small steps from event to event of all clients at once."""
    stays, rate, resumes = case["stays"], case["server"], case["resumes"]
    now, ways, rows, order, free = 0.0, [], [], itertools.count(), [-math.inf, -math.inf]

    def begin(way, at):
        """Begin the stage of a way, or go on with it; says when it ends, or when the client leaves before."""
        up = way.stage == 2
        leaves = stays[way.client].next_change(at) if stays[way.client].at(at) else at
        if way.stage == 1:
            end = at + way.own
        else:
            start = max(free[up], at)
            passed = start + way.bits / rate
            end = max(at + way.own, passed)
            if resumes and leaves < end:
                if leaves > start:
                    free[up] = min(passed, leaves)
                way.bits -= min(max(leaves - start, 0.0) * rate, way.bits)
            elif rate < math.inf:
                free[up] = passed
        if resumes and leaves < end:
            way.own = max(way.own - (leaves - at), 0.0)
            way.over, way.again = None, stays[way.client].next_begin(leaves + 1e-12)
        else:
            way.over, way.again = end, None

    def enter(way, at, stage):
        speeds = case["down"][way.client], case["step"][way.client], case["up"][way.client]
        way.stage, way.bits = stage, BITS[stage]
        way.own = speeds[1] if stage == 1 else BITS[stage] / speeds[stage]
        begin(way, at)

    def advance(ways, until, enough):
        """Go on until `until`, or until `enough` replies; the arrived and the lost as (time, way)."""
        arrived, lost = [], []
        while len(arrived) < enough and ways:
            time, _, way = min((way.again or way.over, way.place, way) for way in ways)
            gone = min(ways, key=lambda each: (each.lost, each.place))
            if min(gone.lost, time) > until:
                break
            if gone.lost < time:
                ways.remove(gone)
                lost.append((gone.lost, gone))
            elif way.again is not None:
                begin(way, way.again)
            elif way.stage < 2:
                enter(way, time, way.stage + 1)
            else:
                ways.remove(way)
                arrived.append((time, way))
        return arrived, lost

    for number in range(1, rounds + 1):
        opened = now
        if not ways and not any(stay.at(now) for stay in stays):
            now = min(stay.next_begin(now) for stay in stays)
        there = [client for client, stay in enumerate(stays) if stay.at(now)]
        idle = [client for client in there if client not in {way.client for way in ways}]
        count = min(case["cohort"] - len(ways), len(idle))
        most = min(math.ceil(round(count * (1 + case["over"]), 9)), len(idle))
        if not case["buffer"]:
            free = [-math.inf, -math.inf]
        for client in idle[:most]:
            way = Way(client, number)
            way.place, way.lost = next(order), math.inf if resumes else stays[client].next_change(now)
            ways.append(way)
            enter(way, now, 0)
        begun, wanted = now, case["buffer"] or (count if most > count else most)
        arrived, lost = advance(ways, begun + (case["deadline"] or math.inf), wanted)
        over = len(arrived) == wanted or not ways
        now = max([begun, *(time for time, _ in arrived + lost)]) if over else begun + case["deadline"]
        if case["deadline"]:
            advance(ways, begun + case["deadline"], math.inf)
        late = [way.client for way in ways] if case["deadline"] else []
        rows.append(
            {
                "selected": idle[:most],
                "aggregated": sorted(way.client for _, way in arrived),
                "failed": sorted([way.client for _, way in lost] + late),
                "arrived_s": [time - opened for time, way in sorted(arrived, key=lambda each: each[1].client)],
                "time_s": now,
                "available": len(there),
                "staleness": [number - way.round for _, way in sorted(arrived, key=lambda each: each[1].client)],
            }
        )
        if not case["buffer"]:
            ways = []
    return rows


class Given(Diurnal):
    """Presence with one stay in each period."""

    def __init__(self, case):
        leaving = "resumes" if case["resumes"] else "lost"
        super().__init__(AvailabilityConfig(availability="diurnal", leaving=leaving), len(case["stays"]), 0)
        self._case = case

    def period_s(self, client):
        return self._case["periods"][client]

    def stays(self, client, period):
        return np.array([self._case["edges"][client]])


class Links(SimulatedLinks):
    """Links with the speeds of a case."""

    def __init__(self, config, case):
        super().__init__(config, len(case["stays"]), 0, Given(case))
        self._case = case

    def observe(self, server_round, losses):
        return self._case["up"], self._case["step"]

    def downlinks(self, server_round):
        return self._case["down"]


def random_case(seed):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(3, 12))
    periods = rng.uniform(20.0, 60.0, clients)
    begins = rng.uniform(0.0, 0.3, clients) * periods
    ends = begins + rng.uniform(0.2, 0.65, clients) * periods
    cohort = int(rng.integers(1, clients + 1))
    buffered = bool(seed % 2)
    return {
        "edges": list(zip(begins, ends, strict=True)),
        "periods": periods,
        "stays": [Stay(*row) for row in zip(begins, ends, periods, strict=True)],
        "resumes": bool(seed // 2 % 2),
        "server": [math.inf, float(rng.uniform(20.0, 200.0))][seed // 4 % 2],
        "up": rng.uniform(10.0, 100.0, clients),
        "down": rng.uniform(10.0, 100.0, clients),
        "step": rng.lognormal(1.0, 1.0, clients),
        "cohort": cohort,
        "buffer": int(rng.integers(1, cohort + 1)) if buffered else 0,
        "over": 0.0 if buffered else float(rng.choice([0.0, 0.5])),
        "deadline": 0.0 if buffered else float(rng.choice([0.0, 15.0, 200.0])),
    }


@pytest.mark.parametrize("seed", range(90))
def test_the_clock_is_that_of_the_reference(seed):
    case, rounds = random_case(seed), 8
    clients = len(case["stays"])
    shared = 0.0 if math.isinf(case["server"]) else case["server"]
    network = NetworkConfig(clock="full", server_bits_per_s=shared)
    waiting = BUFFERED | {"buffer_size": case["buffer"], "max_client_share": 0.0} if case["buffer"] else {}
    replies = {"over_selection": case["over"], "round_deadline_s": case["deadline"], "max_update_norm": 0.0} | waiting
    training = TrainingConfig(local_steps=1)
    context = context_of(
        clients=clients, cohort=case["cohort"], rounds=rounds + 1, network=network, training=training, **replies
    )
    strategy = Lowest(replace(context, links=Links(network, case)))

    def fit(client, message):
        return update_reply(UPDATE, client, round_of(message), work_steps=1.0)

    rows, _ = run_rounds(strategy, [StubClient(client, fit) for client in range(clients)], rounds)
    for row, expected in zip(rows, reference(case, rounds), strict=True):
        row["failed"] = [failure["client"] for failure in row["failures"]]
        row.setdefault("staleness", [0] * len(row["aggregated"]))
        assert {key: row[key] for key in expected} == {
            key: pytest.approx(value, rel=1e-6, abs=1e-6) for key, value in expected.items()
        }
