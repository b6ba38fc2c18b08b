# Typed keywords of all settings. `python -m laboratory pages` writes this stub.
# fmt: off

from typing import Literal, TypedDict

class SettingKeywords(TypedDict, total=False):
    preset: str
    model: str
    initial_model: str
    rounds: int
    clients: int
    cohort: int
    eval_every: int
    client_eval: bool
    target: float
    score: str
    metrics: str
    stop_at_target: bool
    patience: int
    probe_batches: int
    probe_bits: int
    data: str
    data_path: str
    data_arguments: str
    download: bool
    image_size: int
    train_examples: int
    test_fraction: float
    normalize: bool
    moments: Literal["computed", "mnist", "cifar10", "cifar100", "tiny-imagenet"]
    augment: Literal["none", "flip", "crop-flip"]
    partition: Literal["iid", "dirichlet", "dirichlet-by-client", "multi-dirichlet", "psi-lda", "missing-classes", "shards", "natural", "own"]
    alpha: float
    alphas: str
    psi: float
    client_examples: int
    missing_classes: int
    partition_form: Literal["text", "code"]
    min_examples: int
    holdout_fraction: float
    holdout_class_examples: int
    surrogate_examples: int
    validation_fraction: float
    attack: Literal["none", "label-flip", "sign-flip", "scaled", "random", "ipm", "alie", "min-max", "backdoor"]
    attackers: str
    attack_knowledge: Literal["honest", "own"]
    attack_from: int
    attack_until: int
    task: str
    class_weights: str
    positive_weights: Literal["all", "client"]
    local_steps: int
    local_epochs: int
    batch_size: int
    lr: float
    lr_decay: float
    lr_step_rounds: int
    optimizer: Literal["sgd", "adam", "adamw"]
    momentum: float
    weight_decay: float
    solver: Literal["fedprox", "sgd", "scaffold", "feddyn", "fednova"]
    mu: float
    feddyn_alpha: float
    clip_norm: float
    compressor: Literal["top-k", "rand-k", "common-k", "qsgd", "none"]
    value_bits: int
    qsgd_levels: int
    ring_bits: int
    error_feedback: bool
    error_feedback_scheme: Literal["ef14", "ef21"]
    curvature_layers: int
    details: Literal["text", "code"]
    residual_decay: Literal["adaptive", "static"]
    residual_decay_static: float
    kept_fraction: float
    kept_cosine: float
    kept_floor: float
    kept_warmup_rounds: int
    kept_warmup_full: bool
    allocation: Literal["score", "uniform"]
    link_cap: Literal["transfer", "round", "none"]
    weighting: Literal["method", "score", "examples", "uniform"]
    aggregation: Literal["mean", "median", "trimmed-mean", "krum", "multi-krum"]
    trim_share: float
    krum_malicious: int
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
    waiting: Literal["synchronous", "buffered", "asynchronous"]
    buffer_size: int
    staleness: Literal["constant", "polynomial"]
    max_staleness: int
    max_client_share: float
    calibration_batches: int
    calibration_form: Literal["average", "sequential", "training", "local"]
    local_layers: str
    dp_clip_norm: float
    dp_noise_multiplier: float
    dp_delta: float
    secure_sums: Literal["none", "masks"]
    least_cohort: int
    clear_number: Literal["none", "norm"]
    share_label_counts: bool
    least_update_examples: int
    share_moments: bool
    participation: Literal["fixed", "adafl-full", "adafl-econom", "isp", "isp-ri"]
    growth_first: int
    growth_last: int
    growth_every: float
    growth_warmup: int
    isp_interval: int
    isp_draws: int
    isp_step: int
    isp_momentum: float
    isp_form: Literal["text", "code"]
    isp_sample: float
    isp_warmup_rounds: int
    isp_warmup_epochs: int
    isp_loss: Literal["clients", "surrogate"]
    isp_jury: Literal["same", "subset"]
    surrogate_path: str
    surrogate_augment: Literal["none", "corrupted"]
    isp_smoothing: float
    isp_smoothing_rule: Literal["text", "code"]
    links: Literal["simulated", "measured"]
    uplink_min_bits_per_s: float
    uplink_max_bits_per_s: float
    step_min_s: float
    step_max_s: float
    spread: Literal["constant", "uniform", "log-normal"]
    link_coupling: Literal["independent", "inverted-loss"]
    clock: Literal["paper", "full", "values"]
    server_bits_per_s: float
    availability: Literal["always", "diurnal", "trace"]
    availability_share: float
    stay_s: float
    availability_trace: str
    leaving: Literal["lost", "resumes"]
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
    threads: int
    eval_threads: int
    client_gpus: float
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["fp32", "bf16"]
    checkpoint_every: int
    changed_data: bool
    hetero_select_loss_weight: float
    hetero_select_diversity_weight: float
    hetero_select_fairness_weight: float
    hetero_select_staleness_weight: float
    hetero_select_without: Literal["none", "loss", "diversity", "fairness-staleness"]
    hetero_select_temperature: float
    hetero_select_loss_source: Literal["probe", "last-fit"]
    hetero_select_probe_candidates: int
    hetero_select_probe_every: int
    hetero_select_average_decay: float
    hetero_select_average_start: Literal["zero", "first"]
    hetero_select_score_adaptive_lr: bool
    hetero_select_stable_combination: Literal["additive", "multiplicative"]
    hetero_select_stable_fairness_scale: float
    hetero_select_stable_staleness_scale: float
    hetero_select_stable_norm_penalty: float
    hetero_select_stable_temperature: float
    terraform_iterations: int
    terraform_count: Literal["iterations", "rounds"]
    terraform_min_clients: int
    terraform_quartiles: Literal["q1-q3", "0-1", "0-q3", "q1-1", "q3-1"]
    terraform_magnitude: Literal["gradient", "bias", "weights", "loss", "norm"]
    fedcvr_bolt_warmup_rounds: int
    fedcvr_bolt_inverse_temperature: float
    fedcvr_bolt_coordinates: int
    power_of_choice_variant: Literal["pow-d", "rpow-d"]
    power_of_choice_candidates: int
    power_of_choice_loss: Literal["train", "test"]
    oort_explore: float
    oort_penalty: float
    active_fl_excluded: float
    active_fl_sharpness: float
    active_fl_uniform: float
    active_fl_valuation: Literal["sqrt-n", "mean", "current"]
    fedcor_warmup: int
    fedcor_interval: int
    fedcor_first_steps: int
    fedcor_steps: int
    fed_cbs_exploration: float
    delta_diversity_weight: float
    delta_variance_weight: float
    delta_draws: Literal["replacement", "distinct"]
    hics_fl_temperature: float
    adafl_distance: Literal["exact", "norm"]
