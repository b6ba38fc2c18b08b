"""Ray workers that are killed in mid-round, and clients that move between the nodes of a Ray cluster."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.processes import titles
from tests.support.rounds import assert_same, written

WORK = "ray::ClientAppActor.run"
"""Process title of a worker while it answers a message."""
SETTINGS = ("--rounds", "6", "--clients", "10", "--cohort", "4")
SETTINGS += ("--set", "local-steps=800", "--set", "checkpoint-every=2", "--set", "probe-batches=2")


def working(root: int) -> list[int]:
    """Workers below the process `root`, and no others, that answer a message now."""
    processes = titles()

    def below(pid: int) -> bool:
        while pid in processes:
            pid = processes[pid][0]
            if pid == root:
                return True
        return False

    return sorted(pid for pid, (_, title) in processes.items() if title.startswith(WORK) and below(pid))


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*FEDSEL, "run", "--engine", "ray", *arguments],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_a_worker(process: "subprocess.Popen[str]", folder: Path, root: int) -> None:
    """SIGKILL one of the run's own workers in the middle of round 4."""
    while written(folder) < 3 or not (workers := working(root)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    os.kill(workers[0], signal.SIGKILL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process of this machine that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    subprocess.run([*FEDSEL, "run", *SETTINGS, "--out", str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two nodes of one CPU each, beside whatever else runs on this machine."""
    with tempfile.TemporaryDirectory(prefix="fedsel-ray-") as folder:
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "temp_dir": folder})
        try:
            nodes.add_node(num_cpus=1)
            yield nodes
        finally:
            nodes.shutdown()


def raylets(cluster: Cluster) -> list[int]:
    return [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_in_mid_round_is_replaced_and_nothing_changes(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process = start(*SETTINGS, "--out", str(folder))
    kill_a_worker(process, folder, process.pid)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert_same(folder, whole)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_two_nodes_give_the_bits_of_one_machine(whole: Path, tmp_path: Path, cluster: Cluster) -> None:
    folder, busy = tmp_path / "nodes", set()
    process = start(*SETTINGS, "--set", f"ray-address={cluster.address}", "--out", str(folder))
    while process.poll() is None:
        busy |= {raylet for raylet in raylets(cluster) if working(raylet)}
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[0]
    assert busy == set(raylets(cluster))
    assert_same(folder, whole)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_cluster_that_loses_a_worker_ends_the_run_which_goes_on_where_it_was(
    whole: Path, tmp_path: Path, cluster: Cluster
) -> None:
    folder = tmp_path / "lost"
    process = start(*SETTINGS, "--set", f"ray-address={cluster.address}", "--out", str(folder))
    kill_a_worker(process, folder, raylets(cluster)[1])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The Ray worker with pid" in output
    assert f"Go on with: fedsel run --resume {folder}" in output.replace("\n", " ")
    again = start("--resume", str(folder))
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert_same(folder, whole)
