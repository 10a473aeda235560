"""Failures on a cluster, by name, and the tests that cover them.

A case is covered by every test that is named for it; `tests/live/operate/test_failure_table.py`
fails if one of them does not exist. Folders are relative to `tests`.
"""

from typing import Final

HERE: Final = "kubernetes/test_failure_cases.py::"
OPERATOR: Final = "kubernetes/test_gang_operator.py::"
REFLECTOR: Final = "kubernetes/test_reflector.py::"
REQUESTS: Final = "kubernetes/test_requests.py::"
FAULTS: Final = "kubernetes/test_faults.py::"
RESTARTS: Final = "kubernetes/test_operator_restarts.py::"
PLACEMENT: Final = "kubernetes/test_gang_placement.py::"
WEBHOOKS: Final = "kubernetes/test_webhooks.py::"
AUTOSCALER: Final = "kubernetes/test_autoscaler.py::"
CACHE: Final = "live/kubernetes/test_cache.py::"
STORED: Final = "gangs/kubernetes/test_stored.py::"
TAKEOVER: Final = "gangs/kubernetes/test_takeover.py::"
LAG: Final = "gangs/test_lag.py::"
MACHINES: Final = "fleet/kubernetes/test_machines.py::"

KILLED: Final = OPERATOR + "test_killed_between_any_two_calls_it_comes_to_the_same"
RECYCLED: Final = "gangs/test_conditions.py::test_a_crash_in_a_termination_costs_no_extra_recycle"
FAULTY: Final = HERE + "test_a_set_comes_up_whatever_becomes_of_requests"
ADMISSION: Final = HERE + "test_pods_that_admission_refuses_are_a_condition_and_no_storm"
WITHOUT_WEBHOOK: Final = HERE + "test_running_sets_go_on_while_the_webhook"
FLEET_KILLED: Final = MACHINES + "test_killed_between_any_two_calls_nothing_is_created_twice"

CASES: Final[dict[str, tuple[str, ...]]] = {
    # The operator dies, or does not hear an answer.
    "killed between two writes of a new set": (KILLED,),
    "killed after a create, before its answer": (KILLED,),
    "killed between the record of a termination and its deletes": (KILLED, RECYCLED),
    "killed between the deletes of a termination and the new start": (KILLED, RECYCLED),
    "killed between the deletes of pods and of their clique": (
        LAG + "test_a_clique_that_is_deleted_gets_no_pods",
    ),
    "killed with half of a gang bound": (
        RESTARTS + "test_a_gang_that_was_bound_in_part_is_completed_or_evicted",
    ),
    "killed between cordon and eviction": (FLEET_KILLED,),
    "killed in an update": (LAG + "test_lag_and_crashes_change_nothing_about_the_end",),
    "a create that happened has no answer": (FAULTY,),
    "a delete that fails in an update": (
        HERE + "test_no_pod_takes_the_place_of_one_that_could_not_be_deleted",
    ),
    "a binding that happened has no answer": (
        HERE + "test_a_binding_without_an_answer_is_read_and_not_repeated",
    ),
    # Watches and caches.
    "every event twice": (CACHE + "test_the_same_event_twice_is_one_call",),
    "events of several kinds out of order": (
        CACHE + "test_whatever_order_news_and_answers_come_in_the_cache_ends_as_the_server",
        STORED + "test_objects_of_all_kinds_in_any_order_come_to_the_same",
    ),
    "a cache half a minute old": (
        LAG + "test_no_pod_is_created_twice_while_the_first_is_not_seen",
        LAG + "test_lag_and_crashes_change_nothing_about_the_end",
    ),
    "an own write that the cache does not show yet": (
        CACHE + "test_an_own_write_is_seen_at_once_and_older_news_do_not_undo_it",
    ),
    "a watch that is cut again and again": (
        REFLECTOR + "test_watches_cut_again_and_again_with_errors_in_between_converge",
    ),
    "history that is gone": (
        REFLECTOR + "test_history_that_etcd_compacted_is_gone_and_deletions_in_the_gap_are_heard",
    ),
    "history that is gone between two pages of a list": (
        REFLECTOR + "test_a_continue_token_that_expired_is_listed_from_the_start",
    ),
    "a watch that says nothing": (REFLECTOR + "test_a_half_open_connection_is_noticed",),
    "etcd restored to an older state": (
        REFLECTOR + "test_an_etcd_restored_to_an_older_state_is_listed",
    ),
    # Objects that others touch.
    "a set deleted and created again at once": (
        HERE + "test_a_set_deleted_and_created_again_at_once_starts_clean",
        STORED + "test_a_set_created_again_before_all_of_the_old_one_is_gone_starts_clean",
    ),
    "a clique made by hand": (HERE + "test_a_clique_made_by_hand_is_not_adopted",),
    "a pod created again under its name": (
        REQUESTS + "test_a_pod_is_bound_once_and_by_its_uid",
        REQUESTS + "test_writes_are_guarded_by_version_and_uid",
    ),
    "a node replaced under its name": (
        HERE + "test_pods_of_a_node_that_was_replaced_under_its_name_are_lost",
        MACHINES + "test_a_machine_whose_node_is_gone_is_replaced",
        MACHINES + "test_a_machine_that_vanishes_between_two_cycles_can_be_had_again",
    ),
    "a node cordoned while its watch is cut": (
        HERE + "test_a_gang_is_not_terminated_for_a_cordon_that_its_operator_could_not_see",
    ),
    "a node deleted while no operator ran": (
        HERE + "test_pods_of_a_node_that_was_deleted_while_no_operator_ran_are_lost",
    ),
    "a label taken off a pod": (HERE + "test_a_label_that_somebody_takes_off_a_pod_is_put_back",),
    "the owner taken off a pod": (
        HERE + "test_a_pod_that_loses_its_owner_is_told_and_replaced_once",
    ),
    "a status that somebody changed meanwhile": (FAULTY,),
    "a field that somebody else owns": (
        REQUESTS + "test_apply_owns_fields_by_manager_and_names_who_has_them",
    ),
    "two scale at once": (
        AUTOSCALER + "test_a_foreign_change_is_reported_and_stays",
        "gangs/test_scaling.py::test_what_is_scaled_is_not_put_back",
    ),
    "scaled below the minimum": (
        OPERATOR + "test_below_its_minimum_there_is_no_gang",
        "gangs/test_scaling.py::test_below_its_minimum_a_gang_waits",
    ),
    "scaled during an update": (
        "gangs/test_scenarios_updates.py::test_ru14_a_group_scaled_out_during_its_update",
        "gangs/test_scenarios_updates.py::test_ru18_to_ru21_a_clique_scaled_in_an_update",
    ),
    # The API server refuses.
    "a quota that ends in the middle of a gang": (
        OPERATOR + "test_a_quota_that_refuses_pods_holds_the_gang_and_nothing_else",
    ),
    "pods that pod security refuses": (ADMISSION,),
    "pods that a limit range refuses": (ADMISSION,),
    "a priority class that does not exist": (ADMISSION,),
    # Deletion.
    "a namespace that is deleted": (
        HERE + "test_a_namespace_that_is_deleted_goes_and_nothing_is_created_in_it",
    ),
    "a set deleted while no operator runs": (
        HERE + "test_without_a_garbage_collector_nothing_is_left_of_a_set",
    ),
    "a finalizer of somebody else that stays": (
        HERE + "test_a_clique_that_something_holds_back_holds_back_nothing_else",
        LAG + "test_a_clique_that_is_being_deleted_keeps_its_name_until_it_is_gone",
    ),
    "no garbage collector": (HERE + "test_without_a_garbage_collector_nothing_is_left_of_a_set",),
    "foreground deletion": (HERE + "test_a_set_that_waits_for_its_parts_to_go_gets_no_new_ones",),
    # Webhooks and kinds.
    "a webhook that is down": (
        WITHOUT_WEBHOOK,
        WEBHOOKS + "test_what_came_in_without_the_webhook_gets_a_condition",
    ),
    "a webhook that says nothing": (WITHOUT_WEBHOOK,),
    "a certificate that is replaced": (
        WEBHOOKS + "test_a_certificate_is_rotated_without_a_call_that_fails",
    ),
    "a dry run of a user": (WEBHOOKS + "test_wrong_sets_are_refused_and_defaults_filled_in",),
    "kinds that are not there yet": (HERE + "test_kinds_that_the_cluster_lacks_are_waited_for",),
    "kinds that are upgraded": (HERE + "test_kinds_that_are_upgraded_roll_nothing_out",),
    "objects that another operator made": (
        STORED + "test_what_others_made_takes_its_name_and_is_left_alone",
    ),
    "objects of Grove's own operator": (
        HERE + "test_sets_of_groves_operator_are_taken_over_and_no_pod_is_restarted",
        TAKEOVER + "test_nothing_is_created_deleted_or_restarted",
        TAKEOVER + "test_it_can_be_killed_after_any_call",
    ),
    # Leaders and clocks.
    "two leaders at once": (
        OPERATOR + "test_two_operators_that_both_believe_to_lead_do_no_harm",
        FAULTS + "test_a_leader_that_was_stopped_writes_nothing_after_the_next_one_began",
    ),
    "a lease lost in a write": (
        FAULTS + "test_a_lease_that_ends_while_a_write_connects_withholds_it",
        AUTOSCALER + "test_no_write_after_the_lease_is_lost",
    ),
    "a clock that is set by an hour": (
        "live/operate/test_failure_table.py::test_a_clock_that_is_set_moves_no_delay",
    ),
    "times in the future": (STORED + "test_times_of_wrong_clocks_and_wrong_texts_are_not_trusted",),
    # The API server is away, slow or busy.
    "an API server that is away": (
        RESTARTS + "test_an_api_server_that_is_killed_delays_and_ends_nothing",
        AUTOSCALER + "test_an_api_server_that_is_away_decides_nothing",
    ),
    "requests are shed": (
        FAULTY,
        FAULTS + "test_reads_are_repeated_and_shed_requests_wait_as_they_are_asked",
        FAULTS + "test_a_lease_is_renewed_while_other_requests_are_shed",
    ),
    "a fifth of the requests fails": (FAULTY,),
    "every answer is slow": (
        FAULTY,
        HERE + "test_a_set_whose_requests_hang_holds_up_no_other",
        FAULTS + "test_a_lease_is_kept_while_every_answer_takes_long",
    ),
    # Machines.
    "a node is dead": (
        HERE + "test_pods_of_a_dead_node_are_lost_before_kubernetes_deletes_them",
        HERE + "test_pods_of_a_dead_node_are_replaced_while_they_cannot_end",
    ),
    "half of all nodes are not ready": (
        HERE + "test_while_many_nodes_are_not_ready_no_gang_is_terminated",
        "gangs/test_held_terminations.py::test_how_many_nodes_hold_terminations_back",
        MACHINES + "test_nodes_that_are_not_ready_are_lost_one_by_one_and_not_all_together",
    ),
    "a spot machine is taken away": (
        MACHINES + "test_after_a_spot_notice_the_replacement_comes_and_the_machine_is_emptied",
    ),
    "an order that no machine comes of": (
        MACHINES + "test_a_claim_that_karpenter_gives_up_is_tried_again_after_a_back_off",
    ),
    "an eviction that a budget refuses": (
        PLACEMENT + "test_a_gang_makes_way_when_its_disruption_budgets_allow_it",
        MACHINES
        + "test_a_drain_waits_for_disruption_budgets_and_for_pods_that_must_not_be_disrupted",
    ),
    "a node that another scheduler has filled": (
        HERE + "test_a_pod_that_its_node_has_no_room_for_is_replaced",
    ),
    # Metrics and size.
    "metrics that are absent or wrong": (
        AUTOSCALER + "test_a_prometheus_that_fails_changes_nothing",
        "scaling/kubernetes/test_control.py::"
        "test_no_order_where_nothing_is_known_or_another_scales",
        "scaling/kubernetes/test_snapshots.py::test_counters_with_resets_add_up",
    ),
    "many sets at once, and a restart": (HERE + "test_many_sets_with_a_restart_in_the_middle",),
}
