"""A user's app that starts and goes on by one program: the same model, the earlier rounds, and what is refused."""

import json
import math
from contextlib import suppress

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import RunFolder
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, model, node, register
from tests.support.rounds import read_rows, without_wall

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 4
KINDS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


class Killed(BaseException):
    """The end of the process."""


def program(
    folder,
    state_dir,
    app=fedsel_app.client_app,
    *,
    options=None,
    killed_at=None,
    seen=None,
    should_stop=None,
    evaluate_fn=None,
    initial_arrays=None,
    rounds=ROUNDS,
):
    """One program of a user: the same at every start. It may be killed when it tests a round."""

    def evaluate(number, arrays):
        if number == killed_at:
            raise Killed
        norm = float(sum(np.square(array.numpy().astype(float)).sum() for array in arrays.values()))
        return MetricRecord(
            {"loss": norm, "odd": math.nan if number == 1 else 1.0, "list": [number, 2 * number], "time": 1 << 60}
        )

    options = {"clients": CLIENTS, "cohort": 2, "links": "simulated", "resume": "auto"} | (options or {})
    built = fedsel_app.strategy("oort" if app is fedsel_app.client_app else "power-of-choice", out=folder, **options)
    clients = register(app(), [] if seen is None else seen)
    grid = InProcessGrid(clients, {90 + n: node(n, state_dir) for n in range(CLIENTS)})
    arrays = {"initial_arrays": initial_arrays or by_name(model()), "num_rounds": rounds}
    return built.start(grid=grid, evaluate_fn=evaluate_fn or evaluate, should_stop=should_stop, **arrays)


def told(result):
    """Everything in a result, with NaN as text."""
    arrays = {name: array.numpy().tolist() for name, array in result.arrays.items()}
    return json.dumps([arrays, *({n: dict(m) for n, m in getattr(result, kind).items()} for kind in KINDS)])


@pytest.mark.parametrize("app", [fedsel_app.client_app, ClientApp])
@pytest.mark.parametrize("killed", [(0, 4, 4), (1, 2, 3, 4)])
def test_killed_in_any_round_the_same_program_ends_with_the_same_model_and_result(tmp_path, app, killed):
    options = {"compressor": "top-k", "kept_fraction": 0.3} if app is fedsel_app.client_app else {}
    whole = program(tmp_path / "whole", tmp_path / "a", app, options=options)
    for number in killed:
        with pytest.raises(Killed):
            program(tmp_path / "parts", tmp_path / "b", app, options=options, killed_at=number)
    parts = program(tmp_path / "parts", tmp_path / "b", app, options=options)
    assert told(parts) == told(whole)
    assert set(parts.evaluate_metrics_serverapp) == set(range(ROUNDS + 1))
    assert set(parts.train_metrics_clientapp) == set(range(1, ROUNDS + 1))
    assert without_wall(read_rows(tmp_path / "parts")) == without_wall(read_rows(tmp_path / "whole"))


def test_a_finished_run_gives_its_result_again_without_any_message(tmp_path):
    first, seen = program(tmp_path / "run", tmp_path), []
    with logged("flwr") as log:
        again = program(tmp_path / "run", tmp_path, seen=seen)
    assert told(again) == told(first)
    assert not seen
    assert "is finished; its result is returned" in log()
    with pytest.raises(ConfigError, match="has 'seed' = 42, and now it would be 7"):
        program(tmp_path / "run", tmp_path, options={"seed": 7})
    with pytest.raises(ConfigError, match=r"has 'rounds' = 4, .* be 6\. It is finished: to train on, start"):
        program(tmp_path / "run", tmp_path, rounds=6)


def test_numbers_of_numpy_and_torch_are_kept_as_they_are(tmp_path):
    """Also Flower's own strategies take a dict from `evaluate_fn`."""
    metrics = {"loss": np.float32(0.25), "accuracy": torch.tensor(0.75), "count": np.int64(3), "list": [1.5]}
    for _ in range(2):  # the second result is that of the finished run
        result = program(tmp_path / "run", tmp_path, evaluate_fn=lambda number, arrays: metrics)
        assert result.evaluate_metrics_serverapp[ROUNDS] == metrics
    assert {(row["loss"], row["accuracy"]) for row in read_rows(tmp_path / "run")} == {(0.25, 0.75)}


@pytest.mark.parametrize("killed_at", [None, 3])
def test_a_run_does_not_go_on_with_other_arrays(tmp_path, killed_at):
    """A turned matrix has as many numbers, and a shorter model would be the beginning of the longer one."""
    with suppress(Killed):
        program(tmp_path / "run", tmp_path, killed_at=killed_at)
    first, *_, last = by_name(model())
    for change in (
        {"fc.weight": Array(model()[4].T)},
        {last: Array(model()[5][:1])},
        {first: Array(np.float32(model()[0]))},
        {"head": Array(model()[0])},
    ):
        other = ArrayRecord(dict(by_name(model())) | change)
        with pytest.raises(ConfigError, match=r"has 'model' = 'flower-app .* and now it would be"):
            program(tmp_path / "run", tmp_path, initial_arrays=other)


def test_a_run_that_should_have_stopped_when_it_was_killed_stops_when_it_goes_on(tmp_path):
    def stopping(number, result):
        return number == 2

    def killing(number, result):
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        program(tmp_path / "parts", tmp_path / "b", should_stop=killing)
    parts = program(tmp_path / "parts", tmp_path / "b", should_stop=stopping)
    assert told(parts) == told(program(tmp_path / "whole", tmp_path / "a", should_stop=stopping))
    assert max(parts.train_metrics_clientapp) == 2


@pytest.mark.parametrize("damage", ['{"round": 1, "train_metrics_clientapp": {"a": "b"}}', '{"round": "1"}'])
def test_a_damaged_file_of_metrics_is_refused_by_name(tmp_path, damage):
    with pytest.raises(Killed):
        program(tmp_path / "run", tmp_path, killed_at=3)
    (tmp_path / "run" / "result.jsonl").write_text(damage + "\n")
    with pytest.raises(ConfigError, match="jsonl cannot be read"):
        program(tmp_path / "run", tmp_path)


def test_a_checkpoint_that_takes_longer_than_the_rounds_waits_unless_the_user_has_set_their_number(
    tmp_path, monkeypatch
):
    """With one slow checkpoint, the rounds after the first save none, because together they take less time."""
    saved, write = [], RunFolder.checkpoint

    def slow(folder, arrays):
        saved.append(int(arrays["round"]))
        clock[0] += 1000.0
        write(folder, arrays)

    clock = [0.0]
    monkeypatch.setattr(RunFolder, "checkpoint", slow)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    program(tmp_path / "one", tmp_path / "a")
    assert saved == [1]
    saved.clear()
    program(tmp_path / "two", tmp_path / "b", options={"checkpoint_every": 1})
    assert saved == [1, 2, 3]
