"""Attacks that once succeeded, each as a test: docs/security.md lists them.

Those of the third round, on 27bbdf9, in this folder or in the file of `tests` that is named. Each of them fails if its
mend is taken away; T12 was not tried so, because it takes three real processes.

T1   test_hostile_replies.py
T2   test_private_settings.py: all but test_a_new_setting_keeps_its_default_until_somebody_has_proven_it
T3   test_folders.py: test_t3_*
T4   test_folders.py: test_t4_*
T5   test_resumable_runs.py: test_t5_a_refused_run_of_the_same_name_leaves_what_resume_needs
T6   test_folders.py: test_t6_*
T7   test_untrusted_server.py: test_a_server_that_has_another_clients_key_neither_reads_nor_deletes_a_state
T8   test_folders.py: test_t8_a_run_lies_below_the_servers_runs
T9   test_words.py: test_t9_estimates_that_memory_cannot_hold_are_refused_beforehand
T10  strategies/aggregation/test_privacy.py: test_epsilon_is_never_negative; a delta above 1/K,
     fedsel_app/wiring/test_validation.py: test_combinations_that_cannot_be_run_are_refused
T11  test_folders.py: test_t4_t11_*, test_t11_*
T12  runs/test_stopped_run.py: test_a_copy_is_told_at_once_and_a_stopped_run_is_resumed
T13  test_resumable_runs.py: test_t13_*
T14  test_words.py: test_t14_*; names that are formulas, simulation/report/test_run_report.py
T15  test_hostile_replies.py
     simulation/flower_app/test_client_metrics.py: test_what_is_not_finite_is_left_out_and_told,
     test_metrics_of_a_refused_reply_do_not_count, test_a_metric_counts_by_examples_within_their_bound
T16  test_folders.py: test_t16_*
"""
