import pytest
import torch

from fedsel_app.config import ConfigError
from fedsel_app.models import device
from fedsel_app.models.device import choose_device, has_bf16, prepare, require_precision, seeded


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


def processor_of(monkeypatch, file, text):
    """Let this process run on the processor that Linux describes by `text`."""
    file.write_text(text)
    monkeypatch.setattr(device, "CPUINFO", file)


@pytest.mark.parametrize(
    "text",
    [
        "flags\t\t: fpu avx512f avx512_bf16\n",
        "flags\t\t: amx_bf16 amx_tile\n",
        "processor\t: 0\nflags\t\t: fpu avx512_bf16\n\nprocessor\t: 1\nflags\t\t: fpu\n",
        "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd40\n",
    ],
)
def test_a_processor_with_units_for_bf16_may_use_them(monkeypatch, tmp_path, text):
    processor_of(monkeypatch, tmp_path / "cpuinfo", text)
    require_precision("bf16", torch.device("cpu"))


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("cpu", "the processor has none of the flags amx_bf16, avx512_bf16, bf16"),
        ("cuda", "this cuda device has no units for it"),
        ("mps", "this mps device has no units for it"),
    ],
)
def test_bf16_without_units_is_refused_and_fp32_never(monkeypatch, tmp_path, kind, missing):
    processor_of(monkeypatch, tmp_path / "cpuinfo", "model name\t: bf16\nflags\t\t: fpu avx512f avx512_fp16\n")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    require_precision("fp32", torch.device(kind))
    with pytest.raises(ConfigError, match=rf"'precision' parameter bf16 would be slower.*: {missing}\. Set fp32\."):
        require_precision("bf16", torch.device(kind))


def test_a_gpu_with_units_for_bf16_may_use_them_and_one_of_apple_never(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert [has_bf16(torch.device(kind)) for kind in ("cuda", "mps")] == [True, False]


def test_the_global_generator_is_seeded_and_restored():
    before = torch.get_rng_state()
    drawn = []
    for seed in (7, 7, 8):
        with seeded(seed, torch.device("cpu")):
            drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)


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
