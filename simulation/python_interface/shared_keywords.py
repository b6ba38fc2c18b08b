"""Keywords of the settings that all methods share, typed.

`python -m simulation.python_interface.generate` generates this module.
"""

from typing import Literal, TypedDict


class SharedKeywords(TypedDict, total=False):
    """Keywords of the settings that all methods share."""

    preset: str

    model: str
    rounds: int
    clients: int
    cohort: int

    eval_every: int
    client_eval: bool
    target: float
    stop_at_target: bool
    probe_batches: int
    probe_batch: Literal["plain", "training"]

    data: str
    data_path: str
    data_arguments: str
    download: bool
    image_size: int
    test_fraction: float
    synthetic_alpha: float
    synthetic_beta: float
    synthetic_clients: int
    regression_clusters: int
    regression_intercept: bool
    ptb_xl_hz: int
    ecg_examples: int

    normalize: bool
    moments: Literal["computed", "mnist", "cifar10", "cifar100", "tiny-imagenet"]
    augment: Literal["none", "flip", "crop-flip"]

    partition: str
    partition_arguments: str
    alpha: float
    alphas: str
    psi: float
    client_examples: int
    missing_classes: int
    partition_form: Literal["text", "code"]
    shards_per_client: int
    min_examples: int
    holdout_fraction: float
    holdout_class_examples: int
    surrogate_examples: int

    positive_weights: Literal["all", "client"]

    local_steps: int
    local_epochs: int
    batch_size: int
    batch_order: Literal["stream", "loader"]
    lr: float
    lr_decay: float
    lr_step_rounds: int
    lr_step_factor: float
    optimizer: Literal["sgd", "adam", "adamw"]
    momentum: float
    weight_decay: float
    solver: Literal["fedprox", "sgd", "scaffold", "feddyn", "fednova"]
    mu: float
    feddyn_alpha: float
    clip_norm: float

    compressor: Literal["top-k", "rand-k", "qsgd", "none"]
    value_bits: int
    top_k_scope: Literal["global", "layer"]
    qsgd_levels: int
    qsgd_bucket: int
    error_feedback: bool
    error_feedback_scheme: Literal["ef14", "ef21"]
    kept_rounding: Literal["ceil", "floor"]
    curvature_layers: int
    curvature_scale: Literal["literal", "layer-mean"]
    curvature_floor: float
    curvature_batch: Literal["plain", "training"]
    curvature_signs: Literal["chosen", "all"]
    curvature_explore: float
    layer_importance: Literal["mask-share", "kept-share"]

    residual_decay: Literal["adaptive", "static"]
    residual_decay_static: float
    residual_decay_min: float
    residual_decay_max: float

    kept_fraction: float
    kept_cosine: float
    kept_floor: float
    kept_min: float
    kept_warmup_rounds: int
    kept_warmup_full: bool
    cosine_from: Literal["round-1", "warmup"]
    allocation: Literal["score", "uniform"]
    link_cap: Literal["transfer", "round", "none"]

    weighting: Literal["method", "score", "examples", "uniform"]
    aggregation: Literal["mean", "median", "trimmed-mean", "krum", "multi-krum"]
    trim_share: float
    krum_malicious: int
    quorum: float
    update_clip: float
    entry_malicious: int
    max_update_norm: float

    example_clip: float
    loss_clip: float

    server_optimizer: Literal["momentum", "mean", "fedadam", "fedyogi", "fedadagrad"]
    server_momentum: float
    server_lr: float
    server_beta1: float
    server_beta2: float
    server_tau: float

    calibration_clients: int
    calibration_batches: int
    calibration_form: Literal["average", "sequential", "training"]

    dp_clip_norm: float
    dp_noise_multiplier: float
    dp_delta: float
    share_label_counts: bool

    participation: Literal["fixed", "adafl-full", "adafl-econom", "adafl-staged", "decay", "isp", "isp-ri"]
    growth_first: int
    growth_last: int
    growth_every: float
    growth_warmup: int
    stages: int
    stage_first: float
    stage_last: float
    decay_rate: float
    decay_last: int

    isp_interval: int
    isp_draws: int
    isp_step: int
    isp_momentum: float
    isp_mix_first: bool
    isp_rounding: Literal["nearest", "down"]
    isp_relative_exponent: float
    isp_intermediate: Literal["discard", "aggregate"]
    isp_sample: float
    isp_warmup_rounds: int
    isp_warmup_epochs: int
    isp_first: int
    isp_if_none: Literal["all", "keep"]

    isp_loss: Literal["clients", "surrogate"]
    isp_jury: Literal["same", "subset"]
    surrogate_path: str
    isp_smoothing: float
    isp_window: int
    isp_smoothing_rule: Literal["text", "code"]

    links: Literal["simulated", "measured"]
    uplink_min_bits_per_s: float
    uplink_max_bits_per_s: float
    step_min_s: float
    step_max_s: float
    link_coupling: Literal["independent", "inverted-loss"]
    clock_bytes: Literal["wire", "paper"]
    clock_probes: bool

    connect_timeout_s: int
    min_available_clients: int
    enrol_timeout_s: float
    node_keys: bool

    round_deadline_s: float
    over_selection: float
    min_returned: int
    reply_timeout_s: float
    client_failure_rate: float

    engine: Literal["auto", "inline", "ray"]
    workers: int
    ray_address: str
    threads: int
    eval_threads: int
    client_gpus: float
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["fp32", "bf16"]

    checkpoint_every: int
    track: str
