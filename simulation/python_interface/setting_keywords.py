"""Keywords of the settings, each method's own too, typed.

`python -m simulation.python_interface.generate` generates this module.
"""

from typing import Literal

from simulation.python_interface.shared_keywords import SharedKeywords


class SettingKeywords(SharedKeywords, total=False):
    """Keywords of the settings, each method's own too."""

    hetero_select_loss_weight: float
    hetero_select_diversity_weight: float
    hetero_select_fairness_weight: float
    hetero_select_staleness_weight: float
    hetero_select_without: Literal["none", "loss", "diversity", "fairness-staleness"]
    hetero_select_staleness_scale: float
    hetero_select_temperature: float
    hetero_select_loss_source: Literal["probe", "last-fit"]
    hetero_select_probe_candidates: int
    hetero_select_probe_every: int
    hetero_select_average_decay: float
    hetero_select_average_start: Literal["zero", "first"]
    hetero_select_sketch_size: int
    hetero_select_score_adaptive_lr: bool
    hetero_select_score_adaptive_lr_max: float

    hetero_select_stable_combination: Literal["additive", "multiplicative"]
    hetero_select_stable_loss_weight: float
    hetero_select_stable_diversity_weight: float
    hetero_select_stable_momentum_weight: float
    hetero_select_stable_fairness_weight: float
    hetero_select_stable_staleness_weight: float
    hetero_select_stable_norm_weight: float
    hetero_select_stable_fairness_scale: float
    hetero_select_stable_staleness_scale: float
    hetero_select_stable_staleness_rounds: int
    hetero_select_stable_norm_penalty: float
    hetero_select_stable_temperature: float
    hetero_select_stable_cooling_rounds: int

    terraform_iterations: int
    terraform_count: Literal["iterations", "rounds"]
    terraform_min_clients: int
    terraform_quartiles: Literal["q1-q3", "0-1", "0-q3", "q1-1", "q3-1"]
    terraform_magnitude: Literal["gradient", "bias", "weights", "loss"]

    fedcvr_bolt_warmup_rounds: int
    fedcvr_bolt_inverse_temperature: float
    fedcvr_bolt_homophily: float
    fedcvr_bolt_coordinates: int
    fedcvr_bolt_cluster_every: int
    fedcvr_bolt_normalisation: Literal["clients", "coordinates", "none"]
    fedcvr_bolt_sampled_delta: Literal["zero", "own"]
    fedcvr_bolt_step_from: Literal["warm-up", "round-1"]
    fedcvr_bolt_landmarks: int

    power_of_choice_variant: Literal["pow-d", "cpow-d", "rpow-d", "adapow-d"]
    power_of_choice_candidates: int
    power_of_choice_loss: Literal["train", "test"]

    oort_rule: Literal["paper", "official"]
    oort_explore: float
    oort_explore_decay: float
    oort_explore_min: float
    oort_cutoff: float
    oort_clip: float
    oort_penalty: float
    oort_pacer_rounds: int
    oort_pacer_step_s: float
    oort_pacer_percentile: float
    oort_pacer_delta: float
    oort_sample_window: float
    oort_blacklist_rounds: int
    oort_blacklist_share: float

    active_fl_excluded: float
    active_fl_sharpness: float
    active_fl_uniform: float
    active_fl_valuation: Literal["sqrt-n", "mean", "current"]
    active_fl_cold_start: Literal["probe", "uniform"]

    fedcor_warmup: int
    fedcor_interval: int
    fedcor_annealing: float
    fedcor_discount: float
    fedcor_history: int
    fedcor_dimension: int
    fedcor_update_mean: bool
    fedcor_first_steps: int
    fedcor_warmup_steps: int
    fedcor_steps: int

    fed_cbs_exploration: float

    delta_rule: Literal["delta", "fedis"]
    delta_diversity_weight: float
    delta_variance_weight: float
    delta_uniform_share: float
    delta_draws: Literal["replacement", "distinct"]

    hics_fl_rule: Literal["paper", "official"]
    hics_fl_temperature: float
    hics_fl_entropy_distance: float
    hics_fl_balance: float
    hics_fl_clusters: int

    divfl_gradients: Literal["stale", "ideal"]
    divfl_subsample: float
    divfl_layers: Literal["all", "output"]

    clustered_sampling_algorithm: int
    clustered_sampling_linkage: Literal["average", "ward-rows"]

    adafl_decay: float

    fedcg_error_weight: float
    fedcg_compression_weight: float
    fedcg_deadline_s: float
    fedcg_alternations: int

    flexcom_deadline: Literal["median", "mean"]

    adasample_bound_offset: float
    adasample_uniform_share: float
