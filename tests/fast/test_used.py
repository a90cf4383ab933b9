"""Nothing can be set that nothing uses.

Every knob of a scheme reaches an endpoint, a switch or a host. A shipped experiment or intent sets each knob and each
field of an experiment and of a QoS intent, and names each workload and topology; or PROOFS names the test of what it
does. A new one without either fails here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from scheme_wire import BUFFER_BYTES, JOB, LAB, MODEL

from dlcp import schemes
from dlcp.model.experiment import Experiment
from dlcp.model.loading.experiment_files import (
    experiment_names,
    find_experiment,
    load_topology,
    sizes_names,
    topology_names,
    workload_names,
)
from dlcp.model.qos import QosIntent
from dlcp.model.workload import Training
from dlcp.schemes.base import Scheme, hosts_for, settings_for
from dlcp.switches.vendor.files import find_intent, intent_names

TESTS = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests")

OTHER_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "compression": ("fp16", {}),
    "compression_ratio": (0.02, {"compression": "topk"}),
    "credit": ("100 kB", {}),
    "demote_after": ([0.1, 0.3], {}),
    "droppable_back": (["small"], {}),
    "droppable_front": (["large"], {}),
    "fraction": (0.5, {}),
    "full_sync_every": (3, {"pull_loss_bound": 0.1}),
    "loss_bound": (0.05, {}),
    "loss_bound_schedule": ([[0, 0], [0.2, 0.1]], {}),
    "mark_from": (0.1, {"congestion_control": "dctcp"}),
    "partition": ("10 kB", {}),
    "order": ("small-first", {}),
    "slice": ("10 kB", {}),
    "source_ports": (6, {"spraying": "source-ports"}),
    "t_high_s": ("4 ms", {"t_low_s": "1 ms", "t_high_s": "3 ms"}),
    "t_low_s": ("2 ms", {"t_low_s": "1 ms", "t_high_s": "3 ms"}),
}
"""Knob → a value that is not its default, and other knobs without which it means nothing. For a number, a choice and a
switch, another value follows from the type."""
ONE_VALUE = {
    ("dctcp", "congestion_control"): "a knob of the class that it inherits, with dctcp as the only choice",
    ("masked", "recorded"): "names a file, and one ships; test_recording__holes_of_a_run_are_replayed_where_they_were",
}
"""Knobs that have no other value to try, and why."""

PROOFS: dict[str, str] = {
    # schemes
    "control_reserved": "test_what_a_scheme_reserves_it_pays_with_what_its_queues_share",
    "congestion_control": "test_effective_is_what_was_intended",
    "error_feedback": "test_error_feedback__what_is_left_out_comes_later",
    "must_arrive_below_packets": "test_must_arrive__is_fewer_packets_than_the_setting",
    "must_arrive_largest": "test_the_largest_gradients_may_be_told_to_arrive",
    "step_share": "test_update__has_the_methods_step_and_no_momentum_twice",
    "dblp.check_every": "test_dblp__checks_a_tenth_of_the_job_apart",
    "dblp.loss_bound": "test_dblp__sends_at_line_rate_and_loses_up_to_the_declared_bound",
    "dblp.norm_drop": "test_dblp__the_bound_is_forty_points_larger_outside_the_critical_phase",
    "dblp.relaxed_by": "test_dblp__the_bound_is_forty_points_larger_outside_the_critical_phase",
    "dblp.window_packets": "test_dblp__sends_at_line_rate_and_loses_up_to_the_declared_bound",
    "dctcp.mark_from": "test_dctcp_udp__a_marking_port_overflows_less",
    "dgc.ratio": "test_bytes__dgc_sends_about_its_share_and_warms_it_up",
    "dgc.warmup": "test_bytes__dgc_sends_about_its_share_and_warms_it_up",
    "dlcp.compression_ratio": "test_topk__sends_the_largest_and_only_those",
    "dlcp.congestion_control": "test_dctcp_holds_the_incast_by_marks",
    "dlcp.droppable_back": "test_a_tensor_s_mask_says_which_magnitudes_are_droppable",
    "dlcp.droppable_from": "test_drops_follow_the_curve",
    "dlcp.droppable_front": "test_a_tensor_s_mask_says_which_magnitudes_are_droppable",
    "dlcp.droppable_until": "test_drops_follow_the_curve",
    "dlcp.energy_bound": "test_large_gradients_are_sent_again_and_small_ones_are_not",
    "dlcp.full_sync_every": "test_drift__workers_are_identical_after_every_full_sync",
    "dlcp.holes": "test_last__fills_a_hole_with_the_values_of_the_iteration_before",
    "dlcp.layer_map": "test_queues__by_bytes_and_by_count_differ_when_the_back_is_heavy",
    "dlcp.loss_bound_schedule": "test_push__follows_the_schedule_from_the_share_of_training_on",
    "dlcp.magnitude": "test_the_metric_decides_what_is_small",
    "dlcp.mark_from": "test_dctcp_holds_the_incast_by_marks",
    "dlcp.protected_tail_share": "test_droppable__never_in_the_protected_tail",
    "dlcp.pull_loss_bound": "test_drift__workers_are_identical_after_every_full_sync",
    "dlcp.source_ports": "test_source_ports__are_told_to_every_peer",
    "dlcp.spraying": "test_source_ports__are_told_to_every_peer",
    "dlcp.t_high_s": "test_thresholds_that_are_given_decide_how_long_the_queue_is",
    "dlcp.t_low_s": "test_thresholds_that_are_given_decide_how_long_the_queue_is",
    "ltp.fraction": "test_ltp__closes_at_the_fraction_and_the_deadline_and_not_before",
    "ltp.newest_weight": "test_ltp__the_deadline_is_a_multiple_of_the_moving_average",
    "ltp.slack": "test_ltp__the_deadline_is_a_multiple_of_the_moving_average",
    "masked.front_share": "test_masks__layers_are_told_apart_inside_a_message",
    "optireduce.hadamard": "test_hadamard__without_loss_is_the_same_training",
    "optireduce.loss_high": "test_wait__doubles_with_much_loss_and_shrinks_by_points_with_little",
    "optireduce.loss_low": "test_wait__doubles_with_much_loss_and_shrinks_by_points_with_little",
    "optireduce.quantile": "test_hard_bound__is_the_quantile_of_what_was_measured_and_stays",
    "optireduce.repair": "test_times__close_a_stage_without_the_rank_that_is_late",
    "optireduce.senders_at_once": "test_at_once__limits_what_a_rank_sends_of_a_tensor_and_nobody_is_first_for_all",
    "optireduce.tail": "test_deadlines__are_the_hard_bound_for_anything_and_soon_after_tc_for_a_tail",
    "optireduce.wait": "test_deadlines__are_the_hard_bound_for_anything_and_soon_after_tc_for_a_tail",
    "optireduce.warmup": "test_warmup__loses_nothing_and_closes_nothing",
    "p3.low_water": "test_p3__of_the_slices_that_wait_the_front_goes_first_and_what_has_begun_goes_on",
    "pias.bucket_bytes": "test_pias__shares_are_of_the_jobs_bucket",
    "pias.demote_after": "test_pias__a_message_sinks_by_the_bytes_that_it_has_sent",
    "pias.mark_from": "test_pias__queues_are_marked_alike_and_nobody_shares_them_with_control",
    "powersgd.rank": "test_powersgd__finds_a_matrix_of_its_rank_and_orthonormal_columns",
    "qsgd.chunk": "test_cosine__of_one_qsgd_code_is_what_grace_has_and_chunks_keep_more",
    "qsgd.levels": "test_bias__the_mean_over_many_draws_is_the_mean_gradient",
    "qsgd.norm": "test_bias__the_mean_over_many_draws_is_the_mean_gradient",
    "randomblock.ratio": "test_randomblock__is_one_block_that_may_wrap_round",
    "randomk.ratio": "test_bias__the_mean_over_many_draws_is_the_mean_gradient",
    "rto_min_s": "test_effective_is_what_was_intended",
    "slow_start_after_idle": "test_set_up_and_restore",
    "terngrad.clip_sigmas": "test_bias__clipping_is_all_that_terngrad_loses",
    "topk.ratio": "test_topk__sends_the_largest_and_only_those",
}
"""Knob (of one scheme, or of all that have it) → the test of what it does."""


FIELD_PROOFS: dict[str, str] = {
    "AnyGraph": "test_all_reach_all",
    "Buffering.minimum_bytes": "test_a_queue_reserves_no_more_than_its_limit",
    "Codepoint": "test_any_intent_is_rendered_or_refused_with_reasons",
    "Dumbbell": "test_all_reach_all",
    "Experiment.backlog_every_s": "test_a_result_says_what_was_done_to_the_fabric",
    "Experiment.flowlet_gap_s": "test_times_are_longer_rates_lower_and_nothing_else_changes",
    "Experiment.load_balancing": "test_the_experiments_switches_balance_as_it_says",
    "Experiment.pfc": "test_a_result_says_how_often_pfc_paused",
    "Experiment.queues": "test_the_experiments_queues_change_what_they_name_and_leave_the_rest",
    "Experiment.shared_buffer": "test_the_experiments_alpha_is_for_queues_without_their_own",
    "FatTree": "test_all_reach_all",
    "Job.beside_scheme": "test_two_jobs__run_at_once_and_are_told_apart",
    "LeafSpine.delay_s": "test_a_round_trip_takes_each_delay_twice",
    "LeafSpine.uplink_rate_bps": "test_oversubscription_is_in_the_uplinks",
    "QosIntent.control_plane": "test_any_intent_is_rendered_or_refused_with_reasons",
    "QosIntent.dscp": "test_any_intent_is_rendered_or_refused_with_reasons",
    "QosIntent.flowlet_gap_s": "test_a_flowlet_keeps_its_path_and_the_next_may_take_another",
    "QosIntent.on_unsupported": "test_degrading_is_only_by_leave_and_is_told",
    "QosIntent.shared_buffer_bytes": "test_ports_share_a_buffer_by_dynamic_thresholds",
    "QosIntent.switch_load_balancing": "test_each_switch_may_balance_in_its_own_way",
    "QueueIntent.alpha": "test_ports_share_a_buffer_by_dynamic_thresholds",
    "QueueIntent.averaging": "test_an_average_lets_a_burst_pass_and_not_an_overload",
    "QueueIntent.limit_bytes": "test_a_queue_holds_its_limit_at_most",
    "QueueIntent.weight": "test_weighted_queues_share_what_the_strict_ones_leave",
    "QueueRule": "test_the_experiments_queues_change_what_they_name_and_leave_the_rest",
    "Reduced.repeats": "test_reduced__leaves_out_what_is_not_named",
    "SchemeChoice.knobs_for": "test_knobs_for__a_job_has_its_own_and_the_rest_is_common",
    "SharedBuffer": "test_the_experiments_alpha_is_for_queues_without_their_own",
    "Star.delay_s": "test_a_round_trip_takes_each_delay_twice",
    "WrittenLink": "test_all_reach_all",
}
"""Field, or part with all of its fields, of an experiment or an intent → the test of what it does."""
NOT_WRITTEN = {"Scaling.dilated_by", "Scaling.scaled_down", "Poisson.table"}
"""Fields that the program fills in itself."""
NAMED_PROOFS: dict[str, str] = dict.fromkeys(topology_names(), "test_all_reach_all") | dict.fromkeys(
    ("kjv-lstm", "kjv-transformer"), "test_model__learns_with_the_testbeds_update"
)
"""Workload or topology → the test that uses it."""
TRAINING = Training(kind="training", name="t", script="t.py", dataset="none", batch=1, learning_rate=0.1, momentum=0)
KNOBS = [(name, knob) for name in schemes.names() for knob in schemes.scheme_class(name).model_fields]
DLCP = schemes.scheme_class("dlcp")
OWN_KNOBS = [(name, knob) for name, knob in KNOBS if name == "dlcp" or not issubclass(schemes.scheme_class(name), DLCP)]
"""Knobs of schemes that are not DLCP with other defaults: those have its knobs."""


@pytest.mark.parametrize(("name", "knob"), [own for own in OWN_KNOBS if own not in ONE_VALUE])
def test_every_knob_reaches_an_endpoint_a_switch_or_a_host(name: str, knob: str) -> None:
    value, needed = other_value(schemes.scheme_class(name), knob)
    assert effect(name, needed | {knob: value}) != effect(name, needed)


def test_every_knob_is_set_by_an_experiment_or_proven() -> None:
    set_there = knobs_of_experiments()
    unused = [
        f"{name}.{knob}" for name, knob in OWN_KNOBS if (name, knob) not in set_there and not knob_proof(name, knob)
    ]
    assert unused == []


def test_every_field_is_written_by_an_experiment_or_intent_or_proven() -> None:
    written = {field for document in documents() for field in fields_set(document)}
    unused = sorted(all_fields() - written - NOT_WRITTEN)
    unused = [field for field in unused if FIELD_PROOFS.keys().isdisjoint({field, field.partition(".")[0]})]
    assert unused == []


def test_every_workload_and_topology_is_named_by_an_experiment_or_proven() -> None:
    texts = [find_experiment(name).read_text() for name in experiment_names()]
    words = {word.strip("{},") for text in texts for word in text.split()}
    assert {*workload_names(), *sizes_names(), *topology_names()} - words - NAMED_PROOFS.keys() == set()


def test_every_proof_is_a_test_and_of_something_that_exists() -> None:
    proofs = [*PROOFS.values(), *FIELD_PROOFS.values(), *NAMED_PROOFS.values()]
    assert sorted(set(proofs) - names_of_tests()) == []
    assert sorted(FIELD_PROOFS.keys() - all_fields() - {field.partition(".")[0] for field in all_fields()}) == []
    known = {knob for _, knob in KNOBS} | {f"{name}.{knob}" for name, knob in KNOBS}
    assert sorted(PROOFS.keys() - known) == []
    assert sorted(NAMED_PROOFS.keys() - {*workload_names(), *topology_names()}) == []


def test_no_proof_stands_for_what_an_experiment_uses() -> None:
    """The table would only hide that the experiment was taken away."""
    names = [f"{name}.{knob}" for name, knob in knobs_of_experiments()]
    assert sorted(PROOFS.keys() & set(names)) == []
    written = {field for document in documents() for field in fields_set(document)}
    assert sorted(FIELD_PROOFS.keys() & written) == []


def effect(name: str, knobs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all that a run takes from a scheme: settings of endpoints, switches and hosts."""
    kind = schemes.scheme_class(name)
    job = JOB if name != "optireduce" else JOB.model_copy(update={"pattern": "transpose", "servers": ()})
    scheme = kind.model_validate(knobs).for_job(job, TRAINING if kind.kind == "masked" else MODEL)
    return settings_for(scheme, LAB), scheme.intent(BUFFER_BYTES), hosts_for([scheme], LAB)


def other_value(scheme: type[Scheme], knob: str) -> tuple[Any, dict[str, Any]]:
    """Return a value that is not the knob's default, and the knobs that it needs besides."""
    field = scheme.model_fields[knob]
    if knob in OTHER_VALUES:
        value, needed = OTHER_VALUES[knob]
        return value, {name: other for name, other in needed.items() if name in scheme.model_fields}
    if get_origin(field.annotation) is Literal:
        return next(choice for choice in get_args(field.annotation) if choice != field.default), {}
    if isinstance(field.default, bool):
        return not field.default, {}
    if isinstance(field.default, int):
        return field.default + 1, {}
    assert isinstance(field.default, float), f"OTHER_VALUES lacks {knob}"
    return (field.default / 2 or 0.05), {}


@cache
def knobs_of_experiments() -> set[tuple[str, str]]:
    """Return each scheme and knob that a shipped experiment sets, itself or by a variant of DLCP."""
    choices = [choice for one in documents() if isinstance(one, Experiment) for choice in one.schemes]
    found = {
        (choice.scheme, knob)
        for choice in choices
        for knobs in (choice.knobs, choice.search, *choice.knobs_for.values())
        for knob in knobs
    }
    for kind in {schemes.scheme_class(choice.scheme) for choice in choices}:
        if issubclass(kind, DLCP):
            own = {knob: field.default for knob, field in kind.model_fields.items()}
            found |= {("dlcp", knob) for knob, field in DLCP.model_fields.items() if own[knob] != field.default}
    return found


def knob_proof(name: str, knob: str) -> str:
    """Return the test that PROOFS names for a knob, or nothing."""
    return PROOFS.get(f"{name}.{knob}") or PROOFS.get(knob, "")


@cache
def documents() -> list[BaseModel]:
    """Return every experiment and intent that ships, as written; the full checks of their loader take seconds."""
    experiments = [yaml.safe_load(find_experiment(name).read_text()) for name in experiment_names()]
    for written in experiments:
        if isinstance(written["topology"], str):
            written["topology"], _ = load_topology(written["topology"])
    intents = [yaml.safe_load(find_intent(name).read_text()) for name in intent_names()]
    return [*map(Experiment.model_validate, experiments), *map(QosIntent.model_validate, intents)]


def fields_set(value: Any) -> Iterator[str]:
    """Yield Class.field of all that was written in a document."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield f"{type(value).__name__}.{name}"
            yield from fields_set(getattr(value, name))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from fields_set(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from fields_set(inner)


@cache
def all_fields() -> set[str]:
    """Return Class.field of every part of an experiment and of an intent, but for the tables in workloads/cdf."""
    parts: set[type[BaseModel]] = set()
    _collect_parts(Experiment, parts)
    _collect_parts(QosIntent, parts)
    of_files = {"SizeTable", "SizePoint"}
    return {f"{part.__name__}.{name}" for part in parts if part.__name__ not in of_files for name in part.model_fields}


def _collect_parts(annotation: Any, parts: set[type[BaseModel]]) -> None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation not in parts:
            parts.add(annotation)
            for field in annotation.model_fields.values():
                _collect_parts(field.annotation, parts)
        return
    for part in get_args(annotation):
        _collect_parts(part, parts)


@cache
def names_of_tests() -> set[str]:
    """Return the names of all tests of the project."""
    return {
        name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
