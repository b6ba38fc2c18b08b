"""Ray clusters that cannot be joined, without starting Ray."""

import socket

import pytest

from fedsel_app.config import ConfigError, ExecutionConfig
from simulation.engines.ray_cluster import join


def test_an_address_without_a_cluster_is_refused_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConfigError, match=rf"^No Ray cluster answers at 'ray-address' {address} "):
        join(address, {"num_cpus": 1.0}, tmp_path / "clients")
    assert not (tmp_path / "clients").exists()


def test_the_cluster_says_how_many_workers_there_are():
    with pytest.raises(ConfigError, match=r"With 'ray-address' .* 'workers'; leave it at 0\. Got 2\."):
        ExecutionConfig(ray_address="auto", workers=2)
