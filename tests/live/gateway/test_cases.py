"""Which tests hold the sixty situations that a gateway has to get right, by number."""

import ast
from pathlib import Path

import pytest

CASES = {
    1: ("chat, no stream", "data_path: an_answer_passes_unchanged_with_a_request_id"),
    2: ("chat, stream", "data_path: chunks_of_a_stream_pass_one_by_one_and_done_is_last"),
    3: ("chunks cut anywhere", "data_path: bytes_are_the_same_however_the_server_cuts_them"),
    4: ("usage not asked for", "data_path: usage_is_asked_for_and_taken_out_again"),
    5: ("Responses stream", "data_path: events_of_responses_keep_their_lines_and_get_no_done"),
    6: (
        "a stored response",
        "stored_responses: a_stored_response_is_asked_of_the_server_that_made_it",
    ),
    7: ("unknown field", "data_path: unknown_fields_are_forwarded_as_they_were_written"),
    8: ("body not JSON", "data_path: bad_bodies_are_refused_without_asking_a_server"),
    9: ("no model, unknown model", "data_path: bad_bodies_are_refused_without_asking_a_server"),
    10: (
        "adapter as model",
        "data_path: an_adapter_is_routed_to_its_base_model_under_its_own_name",
    ),
    11: ("models that differ", "data_path: models_of_servers_that_differ_are_listed_once_each"),
    12: ("wrong key", "admission: a_key_stands_for_its_tenant_whatever_a_header_says"),
    13: (
        "header of another tenant",
        "admission: a_key_stands_for_its_tenant_whatever_a_header_says",
    ),
    14: ("keys nowhere", "admission: the_access_log_has_a_line_for_every_request_and_no_secret"),
    15: ("upstream 401", "failures: the_key_of_the_gateway_is_not_blamed_on_the_client"),
    16: (
        "destination header",
        "data_path: headers_of_the_connection_and_of_routing_are_not_forwarded",
    ),
    17: ("kv_transfer_params", "data_path: kv_transfer_parameters_of_clients_are_removed"),
    18: (
        "rank and prefiller headers",
        "data_path: headers_of_the_connection_and_of_routing_are_not_forwarded",
    ),
    19: (
        "Connection: x-foo",
        "data_path: headers_of_the_connection_and_of_routing_are_not_forwarded",
    ),
    20: ("both lengths", "data_path: what_is_not_plain_http_is_refused_and_closed"),
    21: ("no Host, two Hosts", "data_path: what_is_not_plain_http_is_refused_and_closed"),
    22: ("other paths", "data_path: other_paths_are_never_forwarded"),
    23: ("body over limit", "data_path: a_body_over_the_limit_is_refused_before_it_is_read"),
    24: (
        "slow headers",
        "data_path: a_slow_head_is_closed_in_time_and_others_are_unharmed",
    ),
    25: (
        "client stops reading",
        "data_path: a_client_that_reads_nothing_is_cut_off_in_bounded_memory",
    ),
    26: ("leaves the queue", "admission: a_client_that_leaves_the_queue_gives_its_place_to_others"),
    27: ("leaves before a byte", "data_path: a_client_that_leaves_cancels_its_request_at_once"),
    28: ("leaves in mid-stream", "data_path: a_client_that_leaves_cancels_its_request_at_once"),
    29: ("leaves, not streaming", "data_path: a_client_that_leaves_cancels_its_request_at_once"),
    30: (
        "leaves after prefill",
        "disaggregation: a_client_that_leaves_during_prefill_costs_the_decode_server_nothing",
    ),
    31: ("connection refused", "failures: a_refused_connection_goes_to_another_server"),
    32: (
        "reused connection reset",
        "failures: a_pooled_connection_that_was_closed_is_tried_once_more_on_the_same_server",
    ),
    33: (
        "503 before first byte",
        "failures: a_failure_before_the_first_byte_goes_to_another_server",
    ),
    34: ("500 before first byte", "failures: 500_is_passed_on_and_not_repeated"),
    35: ("400 upstream", "failures: client_errors_never_open_a_breaker"),
    36: ("cut in mid-stream", "failures: an_answer_that_breaks_off_never_looks_complete"),
    37: ("no [DONE]", "failures: an_answer_that_breaks_off_never_looks_complete"),
    38: (
        "silent server",
        "failures: a_silent_server_is_504_before_the_first_byte_and_cut_after_it",
    ),
    39: ("every server fails", "failures: when_every_server_fails_there_is_one_503_and_no_storm"),
    40: ("breaker", "failures: a_breaker_opens_tries_one_at_a_time_and_closes"),
    41: ("all breakers open", "failures: with_every_breaker_open_the_least_bad_server_is_tried"),
    42: ("asleep", "failures: a_sleeping_server_is_not_chosen"),
    43: (
        "drained",
        "failures: a_server_that_leaves_the_list_is_drained_and_one_that_joins_is_used",
    ),
    44: ("SIGTERM", "admission: sigterm_refuses_the_queue_and_lets_answers_end"),
    45: (
        "no server yet",
        "failures: requests_wait_for_the_first_server_and_then_for_no_longer_than_they_may",
    ),
    46: (
        "saturated, sheddable",
        "admission: protected_requests_wait_and_go_first_and_sheddable_ones_are_refused",
    ),
    47: (
        "saturated, protected",
        "admission: protected_requests_wait_and_go_first_and_sheddable_ones_are_refused",
    ),
    48: (
        "queue full",
        "admission: protected_requests_wait_and_go_first_and_sheddable_ones_are_refused",
    ),
    49: (
        "TTL passes",
        "admission: a_queued_request_is_refused_when_its_time_is_over_and_not_at_a_scan",
    ),
    50: ("one tenant floods", "admission: tenants_share_the_servers_although_one_floods"),
    51: (
        "eviction",
        "admission: a_running_request_that_makes_way_is_cut_with_an_error_and_counted_once",
    ),
    52: ("scrape hangs or lies", "failures: scrapes_that_fail_or_lie_stop_nothing"),
    53: (
        "all metrics stale",
        "failures: servers_that_were_full_when_last_seen_do_not_halt_the_gateway",
    ),
    54: ("burst of equals", "admission: equal_requests_between_two_scrapes_are_spread_evenly"),
    55: (
        "KV events with gaps",
        "kv_events: lost_events_are_replayed_and_a_restart_or_a_gap_forgets",
    ),
    56: ("other salt", "admission: the_same_text_shares_a_prefix_only_within_model_and_salt"),
    57: ("prefill fails", "disaggregation: a_prefill_that_fails_is_not_seen_by_the_client"),
    58: ("picker", "picker: a_subset_limits_the_choice_and_one_without_servers_is_503"),
    59: (
        "picker dies",
        "envoy: a_picker_that_dies_with_requests_held_is_500_and_its_successor_starts_clean",
    ),
    60: (
        "the trace, replayed",
        "clients: the_trace_is_replayed_by_a_simulation_and_the_log_by_an_audit",
    ),
}
"""The situation, and the test that has it: file and name."""


@pytest.mark.once
def test_every_situation_has_a_test_that_exists() -> None:
    assert list(CASES) == list(range(1, 61))
    folder = Path(__file__).parent
    known = {
        f"{path.stem.removeprefix('test_')}: {node.name.removeprefix('test_')}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert {test for _, test in CASES.values()} <= known
