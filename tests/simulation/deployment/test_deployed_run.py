"""What a user sees of a deployed run's log."""

import pytest

from simulation.deployment.deployed_run import show_line


def test_the_log_is_piped_without_colours_and_what_goes_well_in_flower(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in (
        "Using SuperLink: fedsel (localhost:9093)",
        "\x1b[92mINFO \x1b[0m:      Start `flwr-serverapp` process",
        "INFO :      ",
        "Successfully installed fedsel to /home/apps.",
        "round 1 of 2: accuracy 0.5",
        "\x1b[93mWARNING \x1b[0m:   Client 3 left",
    ):
        show_line(line)
    assert capsys.readouterr().out == "round 1 of 2: accuracy 0.5\nWARNING :   Client 3 left\n"
