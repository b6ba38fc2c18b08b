"""Availability: a client's stays, from a trace or drawn, and what leaving does to its training."""

import numpy as np
import pytest

from fedsel_app.config import AvailabilityConfig, ConfigError, NetworkConfig
from fedsel_app.network.availability import DAY_S, Diurnal, Trace
from fedsel_app.network.links import SimulatedLinks, make_links
from strategies.methods.random_selection import RandomSelection
from tests.support.contexts import context_of
from tests.support.rounds import bits, run_round
from tests.support.stubs import round_of, trio, update_of, update_reply

NOTHING = np.zeros(0)
STILL = NetworkConfig(step_min_s=1.0, step_max_s=1.0, uplink_min_bits_per_s=1e9, uplink_max_bits_per_s=1e9)


def trace(folder, *devices, clients=None, seed=0, column="device"):
    """Availability by the trace of devices with these stays."""
    rows = [f"{name},{begun_s},{end_s}\n" for name, stays in enumerate(devices) for begun_s, end_s in stays]
    (folder / "t.csv").write_text(f"{column},begin_s,end_s\n" + "".join(rows))
    config = AvailabilityConfig(availability="trace", availability_trace=str(folder / "t.csv"))
    return config, Trace(config, clients or len(devices), seed)


def test_the_stays_of_a_device_by_hand(tmp_path):
    # There from 2 to 4 and from 8 to 10 of every 10 s, and from 0 to 1: so from 8 to 11, from 18 to 21, and so on.
    _, times = trace(tmp_path, [(0, 1), (2, 4), (8, 10)])
    for time_s, came_s, left_s in [
        *[(0.0, 0.0, 1.0), (0.5, 0.5, 1.0), (1.0, 2.0, 1.0), (3.0, 3.0, 4.0), (4.0, 8.0, 4.0)],
        *[(9.0, 9.0, 11.0), (10.5, 10.5, 11.0), (11.0, 12.0, 11.0), (28.0, 28.0, 31.0)],
    ]:
        assert times.next_available(0, time_s) == came_s
        assert times.leaves(0, time_s) == left_s
    there = [bool(times.available(time_s)[0]) for time_s in (0.0, 1.0, 2.0, 9.0, 10.0, 11.0, 0.5)]
    assert there == [True, False, True, True, True, False, True]


@pytest.mark.timeout(20)
def test_a_device_that_is_away_for_a_nanosecond_of_a_day_is_there_all_the_time(tmp_path):
    """From the 2000th day on its stays had no end that a double tells, and the clock never stopped."""
    _, kept = trace(tmp_path, [(1e-9, DAY_S)])
    assert kept.leaves(0, 10.0) == kept.leaves(0, 2000 * DAY_S) == np.inf


@pytest.mark.parametrize("kind", ["trace", "diurnal"])
def test_who_is_available_in_any_order_of_the_questions(kind, tmp_path):
    def made():
        if kind == "trace":
            return trace(tmp_path, [(0, 100), (300, 400)], [(50, 500)], [(0, 1), (800, 900)], clients=7, seed=3)[1]
        return Diurnal(AvailabilityConfig(availability="diurnal", stay_s=2000.0), 7, 3)

    asked, times = made(), np.sort(np.random.default_rng(0).uniform(0, 3 * DAY_S, 200))
    masks = [made().available(time_s).copy() for time_s in times]
    np.testing.assert_array_equal([asked.available(time_s).copy() for time_s in times], masks)
    for time_s, mask in zip(times.tolist(), masks, strict=True):
        assert [asked.next_available(client, time_s) == time_s for client in range(7)] == mask.tolist()
        assert [asked.leaves(client, time_s) > time_s for client in range(7)] == mask.tolist()


def test_four_times_as_many_clients_are_there_at_the_peak_of_the_day():
    """Bonawitz et al. 2019, Sec. 9. 1,000 clients: the shares 0.32 and 0.08 have a standard error below 0.015."""
    diurnal = Diurnal(AvailabilityConfig(availability="diurnal", availability_share=0.2, stay_s=600.0), 1000, 7)
    shares = [diurnal.available(DAY_S * place / 8).mean() for place in range(9)]
    assert shares[0] == pytest.approx(0.32, abs=0.05)
    assert shares[4] == pytest.approx(0.08, abs=0.03)
    assert np.mean(shares[:8]) == pytest.approx(0.2, abs=0.02)


def round_with_one_that_leaves(folder, **replies):
    """A round of three clients that are there from 100 s on. One leaves after 5 of the 7 s of its training.

    Returns this client and the record.
    """
    long, short = [(100, 1000)], [(100, 105)]
    availability, times = trace(folder, long, short, long, seed=1)
    place = next(client for client in range(3) if times.leaves(client, 100.0) == 105.0)
    context = context_of(network=STILL, availability=availability, seed=1, **replies)
    object.__setattr__(context, "links", make_links(STILL, 3, 1, availability))

    def fit(client, message):
        return update_reply(update_of(client), client, round_of(message), work_steps=7.0)

    strategy = RandomSelection(context)
    [row], _ = run_round(strategy, trio(fit))
    assert strategy.run.time_s == row["time_s"]
    return place, row


@pytest.mark.parametrize("deadline_s", [0.0, 1000.0])
def test_a_round_waits_for_clients_and_records_what_is_lost(deadline_s, tmp_path):
    """It ends with the last reply: nobody is left for whom the server could wait until the deadline."""
    place, row = round_with_one_that_leaves(tmp_path, round_deadline_s=deadline_s)
    assert row["available"] == 3
    assert row["aggregated"] == [client for client in range(3) if client != place]
    assert [(failure["client"], failure["reason"]) for failure in row["failures"]] == [
        (place, "it left after 5.0 s: see 'availability'")
    ]
    assert row["round_s"] == pytest.approx(107.0, abs=1e-3)


def test_a_trace_can_name_the_clients(tmp_path):
    for seed in range(4):
        config, times = trace(tmp_path, [(0, 5)], [(5, 10)], seed=seed, column="client")
        assert [times.available(time_s).tolist() for time_s in (1.0, 6.0, 11.0)] == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(ConfigError, match="stays of the clients 0 to 2, and of no other"):
        Trace(config, 3, 0)


HEAD = "device,begin_s,end_s\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", HEAD, "begin_s,end_s\n0,1\n", f"{HEAD}a,0\n", f"{HEAD}a,x,1\n", f"{HEAD}a,0,inf\n", f"{HEAD}a,-1,1\n"),
        *(f"{HEAD}a,1,0\n", f"{HEAD}a,0,1e-9\n", f"{HEAD}a,0,2\na,1,3\n", f"{HEAD}a,0,2\na,2,3\n"),
    ],
)
def test_a_trace_that_is_not_sound_is_refused(text, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="in the columns device \\(or client\\), begin_s, end_s"):
        make_links(STILL, 1, 0, AvailabilityConfig(availability="trace", availability_trace=str(path)))


def test_everybody_available_changes_nothing(tmp_path):
    _, times = trace(tmp_path, [(0, 10)], clients=3)
    found = []
    for presence in (None, times):
        context = context_of(network=STILL, seed=1)
        object.__setattr__(context, "links", SimulatedLinks(STILL, 3, 1, presence))
        (row,), arrays = run_round(RandomSelection(context), trio())
        found.append((row["selected"], row["round_s"], bits(arrays)))
    assert found[0] == found[1]
