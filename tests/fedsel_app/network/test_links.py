import numpy as np
import pytest

from fedsel_app.config import NetworkConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.network.clock import SharedLink, Transfer
from fedsel_app.network.links import MeasuredLinks, SimulatedLinks, Work, inverted_uplinks, make_links

UNKNOWN = np.full(50, np.nan)


NOTHING = np.zeros(0)


def work(uplinks=(1e6, 4e6), compute_s=(5.0, 2.0), wire=(1000, 500_000), paper=(2000, 1000), downlink=np.inf, down=0):
    uplinks, compute_s = np.array(uplinks, np.float64), np.array(compute_s, np.float64)
    downlinks = np.full(uplinks.size, downlink)
    return Work(np.arange(uplinks.size), compute_s, downlinks, uplinks, down, np.array(wire), np.array(paper))


def seconds(links, done, probe_s=(), waited_s=0.0):
    return links.round_seconds(links.finish_s(done, NOTHING)[0], np.array(probe_s, np.float64), 99.0, waited_s)


def test_draws_depend_on_seed_and_round_only():
    first, second = (SimulatedLinks(NetworkConfig(), 50, 7) for _ in range(2))
    forward = [first.observe(number, np.full(50, 1.0)) for number in (1, 2, 3)]
    backward = [second.observe(number, UNKNOWN) for number in (3, 2, 1, 1)][::-1]
    for (uplinks, step_s), (again, step_again) in zip(forward, backward[1:], strict=True):
        np.testing.assert_array_equal(uplinks, again)
        np.testing.assert_array_equal(step_s, step_again)
    np.testing.assert_array_equal(backward[0][0], backward[1][0])


def test_the_slowest_client_by_hand():
    # Client 0: 10 * 0.5 s + 8,000 bits / 1 Mb/s = 5.008 s. Client 1: 20 * 0.1 s + 4 Mbit / 4 Mb/s = 3 s.
    links = SimulatedLinks(NetworkConfig(), 2, 0)
    assert seconds(links, work()) == pytest.approx(5.008)
    # With 16 Mbit client 1 takes 2 + 4 s: the sum of both times decides which client is the slowest.
    assert seconds(links, work(wire=(1000, 2_000_000))) == pytest.approx(6.0)


def test_the_papers_bytes_on_the_clock():
    # 2,000 bytes: 5 s + 16,000 bits / 1 Mb/s.
    links = SimulatedLinks(NetworkConfig(clock="values"), 2, 0)
    assert seconds(links, work()) == pytest.approx(5.016)


def test_the_slowest_probe_comes_before_training():
    links = SimulatedLinks(NetworkConfig(), 2, 0)
    assert links.probe_s(work(compute_s=(0.25, 0.75))).tolist() == [0.25, 0.75]
    assert seconds(links, work(), probe_s=(0.25, 0.75, 0.5)) == pytest.approx(5.758)
    assert SimulatedLinks(NetworkConfig(clock="values"), 2, 0).probe_s(work()).max() == 0.0


def test_downloads_and_probes_take_time_on_the_full_clock():
    full = SimulatedLinks(NetworkConfig(clock="full"), 2, 0)
    # 250,000 bytes at 2 Mb/s are 1 s before each client's 5.008 and 3 s.
    done = work(downlink=2e6, down=250_000)
    assert full.finish_s(done, NOTHING)[0].tolist() == pytest.approx([6.008, 4.0])
    assert full.probe_s(done).tolist() == pytest.approx([6.008, 4.0])
    # All draw a downlink anew in each round; on the papers' clock none is known to take time.
    drawn, others = full.downlinks(1), full.downlinks(2)
    assert ((drawn >= 5e6) & (drawn <= 25e6)).all()
    assert (drawn != others).all()
    assert np.isinf(SimulatedLinks(NetworkConfig(), 2, 0).downlinks(1)).all()


def test_the_servers_link_is_shared_in_the_order_of_the_transfers():
    links = SimulatedLinks(NetworkConfig(clock="full", server_bits_per_s=1e6), 2, 0)
    # Downloads of 1 Mb each: the server has sent client 0's after 1 s, and client 1's after 2 s. They compute for 5 and
    # 2 s. Client 1 uploads 4 Mb from 4 to 8 s. Client 0's 8,000 bits begin at 6 s and pass after those, in 0.008 s.
    finish_s, _ = links.finish_s(work(downlink=2e6, down=125_000), NOTHING)
    assert finish_s.tolist() == pytest.approx([8.008, 8.0])


@pytest.mark.parametrize("spread", ["constant", "log-normal"])
def test_other_spreads_are_drawn_once(spread):
    links = SimulatedLinks(NetworkConfig(clock="full", spread=spread), 2000, 7)
    (uplinks, step_s), downlinks = links.observe(1, UNKNOWN), links.downlinks(1)
    np.testing.assert_array_equal(uplinks, links.observe(2, UNKNOWN)[0])
    assert links.mean_uplink_bits_per_s == pytest.approx(uplinks.mean())
    if spread == "constant":
        assert {*uplinks, *downlinks, *step_s} == {3e6, 15e6, 0.3}
    if spread == "log-normal":
        for values, low, high in ((uplinks, 1e6, 5e6), (downlinks, 5e6, 25e6), (step_s, 0.1, 0.5)):
            assert np.median(values) == pytest.approx(np.sqrt(low * high), rel=0.05)
            assert ((values >= low) & (values <= high)).mean() == pytest.approx(0.95, abs=0.015)


def test_the_stress_test_gives_the_slowest_link_where_the_loss_is_unknown():
    inverted = inverted_uplinks(np.array([np.nan, 1.0, np.inf, 2.0]), 1e6, 5e6)
    np.testing.assert_allclose(inverted, [1e6, 3e6, 1e6, 1e6])
    np.testing.assert_allclose(inverted_uplinks(np.array([np.nan, np.inf]), 1e6, 5e6), 1e6)
    np.testing.assert_allclose(inverted_uplinks(np.zeros(2), 1e6, 5e6), 1e6)


def test_inverted_links_need_losses_and_follow_them():
    links = SimulatedLinks(NetworkConfig(link_coupling="inverted-loss"), 3, 0)
    assert links.needs_losses
    # 1 + 4 (1 - loss / 4) Mb/s
    np.testing.assert_allclose(links.observe(1, np.array([1.0, 2.0, 4.0]))[0], [4e6, 3e6, 1e6])
    assert not SimulatedLinks(NetworkConfig(), 3, 0).needs_losses


def test_measured_links_by_hand():
    config = NetworkConfig(links="measured", step_min_s=0.2, step_max_s=0.4)
    links = make_links(config, 3, 0)
    assert isinstance(links, MeasuredLinks)
    assert not links.needs_losses
    # No report yet: the middle of 1 to 5 Mb/s and of 0.2 to 0.4 s.
    assert links.mean_uplink_bits_per_s == 3e6
    assert links.observe(1, UNKNOWN)[1].tolist() == pytest.approx([0.3, 0.3, 0.3])
    # 500,000 bytes in 2 s are 2 Mb/s, 30 steps in 3 s 0.1 s each; the others count as client 1 then.
    links.learn(1, TrainAnswer(1.0, 30.0, compute_s=3.0, upload_bytes=500_000, upload_s=2.0))
    uplinks, step_s = links.observe(2, UNKNOWN)
    assert uplinks.tolist() == pytest.approx([2e6, 2e6, 2e6])
    assert step_s.tolist() == pytest.approx([0.1, 0.1, 0.1])
    # 4 Mb/s and 0.3 s: half of the old and half of the new.
    links.learn(1, TrainAnswer(1.0, 10.0, compute_s=3.0, upload_bytes=500_000, upload_s=1.0))
    links.learn(2, TrainAnswer(1.0, 10.0, compute_s=1.0, upload_bytes=125_000, upload_s=1.0))
    uplinks, step_s = links.observe(3, UNKNOWN)
    # The median of two known ones is the smaller one. The client without a report gets the median.
    assert uplinks.tolist() == pytest.approx([1e6, 3e6, 1e6])
    assert step_s.tolist() == pytest.approx([0.1, 0.2, 0.1])
    assert links.mean_uplink_bits_per_s == pytest.approx(1e6)
    finish_s, left = links.finish_s(work(), np.array([3.0, 4.0]))
    assert (finish_s.tolist(), left.tolist()) == ([3.0, 4.0], [False, False])
    assert links.round_seconds(finish_s, NOTHING, wall_s=1.25) == 1.25
    again = make_links(config, 3, 0)
    again.load_state(links.state())
    for mine, other in zip(links.observe(4, UNKNOWN), again.observe(4, UNKNOWN), strict=True):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(ValueError, match="clients"):
        make_links(config, 2, 0).load_state(links.state())


def test_the_wait_for_a_missing_reply_is_on_the_clock():
    links = SimulatedLinks(NetworkConfig(), 2, 0)
    assert seconds(links, work(), probe_s=(0.5,), waited_s=7.0) == 7.5
    assert seconds(links, work(), waited_s=2.0) == pytest.approx(5.008)


def test_a_transfer_whose_client_leaves_passes_the_rest_later():
    """1,000 bits at 100 a second take from second 10 to 20. The client leaves at 15, so 500 bits are left."""
    link = SharedLink(100.0)
    assert link.seconds(10.0, Transfer(1000.0, 2.0), leaves_s=15.0) == (5.0, Transfer(500.0, 0.0))
    assert link.seconds(16.0, Transfer(1000.0, 12.0)) == (12.0, None)
    assert link.free_s == 26.0
