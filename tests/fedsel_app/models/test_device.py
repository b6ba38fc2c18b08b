import pytest
import torch

from fedsel_app.config import ConfigError
from fedsel_app.models.device import choose_device, prepare


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_the_fastest_device(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto") == torch.device(expected)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"'device' parameter is {name}"):
        choose_device(name)


@pytest.mark.parametrize(("kind", "deterministic"), [("cpu", []), ("cuda", [True])])
def test_a_gpus_kernels_are_made_deterministic_and_compute_in_whole_float32(monkeypatch, kind, deterministic):
    asked = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", kind == "cuda")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    prepare(torch.device(kind), torch.get_num_threads())
    assert asked == deterministic
    assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.allow_tf32 == (kind == "cpu")
