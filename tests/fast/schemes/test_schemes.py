"""Every scheme tells of itself what a report shows, scales its timers, and renders an intent that holds together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dlcp import schemes
from dlcp.model.experiment import Scaling
from dlcp.model.workload import Job, Profile
from dlcp.runner.catalogue import details
from dlcp.schemes.base import Scheme, UnfitError, hosts_for, settings_for
from dlcp.transport import compression
from dlcp.transport.compression import compressor_class
from dlcp.transport.contract.tensors import data_queues

LAB = Scaling(lab_rate="10 Gbit/s", byte_scale=100)
DILATED = Scaling(lab_rate="10 Gbit/s", byte_scale=10, time_dilation=10)
NOT_DILATED = Scaling(lab_rate="10 Gbit/s", byte_scale=10)
BUFFER_BYTES = 40_000
JOB = Job(workload="model", workers=("h1", "h2"), servers=("h3",), iterations=10)
RING = Job(workload="model", workers=("h1", "h2"), pattern="ring", iterations=10)
MODEL = Profile(
    kind="profile",
    name="model",
    source="made up",
    source_quality="derived",
    device="none",
    batch=1,
    parameters=1,
    layers=({"name": "only", "parameters": 1, "forward": 0.0, "backward": 0.0},),
)


def dlcp(**knobs: object) -> Scheme:
    return schemes.scheme_class("dlcp").model_validate(knobs)


TRANSPOSE = Job(workload="model", workers=("h1", "h2"), pattern="transpose", iterations=10)


def test_optireduce__is_for_workers_that_sum_among_themselves_and_for_long_jobs() -> None:
    scheme = schemes.scheme_class("optireduce")
    scheme().for_job(TRANSPOSE, MODEL)
    for job in (JOB, RING):
        with pytest.raises(UnfitError, match=f"has the pattern {job.pattern}"):
            scheme().for_job(job, MODEL)
    with pytest.raises(UnfitError, match="warmup: 10 measured iterations leave none of 10"):
        scheme.model_validate({"warmup": 10}).for_job(TRANSPOSE, MODEL)
    with pytest.raises(ValidationError, match="loss_low"):
        scheme.model_validate({"loss_low": 0.1})


def test_optireduce__bounds_time_and_asks_nothing_of_switches() -> None:
    scheme = schemes.scheme_class("optireduce").model_validate({"warmup": 5, "senders_at_once": 2, "repair": True})
    found = scheme.transport(DILATED)
    assert found.time_bounds is not None
    assert (found.time_bounds.warmup_iterations, found.time_bounds.quantile, found.at_once) == (5, 0.95, 2)
    assert found.hadamard
    assert found.time_bounds.repair
    assert (found.selective_drop, found.priority_queues, found.must_arrive_below_packets) == ("off", 1, 0)
    intent = scheme.intent(BUFFER_BYTES)
    assert intent.load_balancing == "flow-hash"
    assert all(profile is None for queue in intent.queues.values() for profile in queue.profiles)


def test_names__are_the_files() -> None:
    assert {"tcp", "tcp-tuned", "dlcp"} <= set(schemes.names())
    with pytest.raises(KeyError):
        schemes.scheme_class("base")


@pytest.mark.parametrize("name", schemes.names())
def test_scheme__tells_of_itself(name: str) -> None:
    found = schemes.scheme_class(name)
    assert found.title
    assert found.paper
    assert found.mechanism
    assert all(field.description for field in found.model_fields.values()), "every knob is described"
    found()


def test_scheme__shows_where_it_departs_from_its_paper() -> None:
    for name in ("bytescheduler", "dblp", "ltp", "p3", "pias"):
        assert "Deviations: " in details("schemes", name)["notes"]


@pytest.mark.parametrize("name", schemes.names())
def test_scheme__an_unknown_knob_is_an_error(name: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        schemes.scheme_class(name).model_validate({"no_such_knob": 1})


def test_tcp__is_left_as_linux_ships_it() -> None:
    scheme = schemes.scheme_class("tcp")()
    assert scheme.hosts(LAB).rto_min_s is None
    assert scheme.transport(LAB).tcp_congestion_control == "cubic"
    assert scheme.intent(BUFFER_BYTES).load_balancing == "flow-hash"
    assert scheme.intent(BUFFER_BYTES).queues == {}


@pytest.mark.parametrize("name", schemes.names())
def test_hosts_for__stretches_what_linux_lets_be_set_under_every_scheme(name: str) -> None:
    """A background over TCP has timers, too, beside a scheme that asks nothing of the hosts."""
    scheme = schemes.scheme_class(name)()
    lab, dilated = hosts_for([scheme], LAB), hosts_for([scheme], DILATED)
    assert lab == scheme.hosts(LAB), "without dilation hosts are as the scheme says"
    assert dilated.rto_min_s == pytest.approx(10 * (0.2 if lab.rto_min_s is None else lab.rto_min_s))
    assert dilated.sysctls == lab.sysctls | {
        "net.ipv4.tcp_comp_sack_delay_ns": "10000000",
        "net.ipv4.tcp_comp_sack_slack_ns": "1000000",
    }
    asked = scheme.hosts(DILATED)
    assert asked == scheme.hosts(LAB), "a scheme speaks of lab time"


@pytest.mark.parametrize(
    ("name", "floor_s"),
    [("tcp", None), ("tcp-tuned", 0.005), ("dctcp", 0.005), ("bytescheduler", 0.005), ("p3", 0.005)],
)
def test_hosts__schemes_over_tcp_inherit_the_floor_of_the_timer(name: str, floor_s: float | None) -> None:
    assert schemes.scheme_class(name)().hosts(LAB).rto_min_s == floor_s


@pytest.mark.parametrize("name", schemes.names())
def test_settings_for__carries_the_dilation_and_changes_nothing_else(name: str) -> None:
    scheme = schemes.scheme_class(name)()
    if name != "masked":  # which needs a job with real gradients
        job = TRANSPOSE if name == "optireduce" else JOB
        scheme = scheme.for_job(job.model_copy(update={"iterations": 200}), MODEL)
    stretched, lab = settings_for(scheme, DILATED), settings_for(scheme, NOT_DILATED)
    assert (stretched.time_dilation, lab.time_dilation) == (10, 1)
    assert stretched.model_copy(update={"time_dilation": 1.0}) == lab, "times of a scheme are lab seconds"


def test_dlcp__drops_only_the_droppable_and_keeps_room_for_control() -> None:
    intent = schemes.scheme_class("dlcp")().intent(BUFFER_BYTES)
    for queue in data_queues(3):
        reliable, protected, droppable = intent.queue(queue).profiles
        assert reliable is None
        assert protected is None
        assert droppable is not None
        assert 0 < droppable.minimum_bytes <= droppable.maximum_bytes < BUFFER_BYTES
    assert intent.queue(7).reserved_bytes > 2 * 1514
    assert intent.queue(7).profiles == (None, None, None)
    assert intent.load_balancing == "per-packet"


def test_dlcp__ect_is_one_step_that_spares_ecn_capable_packets() -> None:
    intent = schemes.scheme_class("dlcp").model_validate({"selective_drop": "ect"}).intent(BUFFER_BYTES)
    profile = intent.queue(5).profiles[0]
    assert profile is not None
    assert profile.mark
    assert profile.minimum_bytes == profile.maximum_bytes


def test_dlcp__off_drops_by_nothing_but_the_buffers_end() -> None:
    intent = schemes.scheme_class("dlcp").model_validate({"selective_drop": "off"}).intent(BUFFER_BYTES)
    assert all(profile is None for queue in range(8) for profile in intent.queue(queue).profiles)


def test_dlcp__knobs_reach_the_agents() -> None:
    knobs = {"loss_bound": "2.4 %", "stop": "eager", "priority_queues": 3, "layer_map": "equal-count"}
    settings = schemes.scheme_class("dlcp").model_validate(knobs).transport(LAB)
    assert settings.loss_bound == pytest.approx(0.024)
    assert settings.pull_loss_bound == 0.0
    assert (settings.stop, settings.priority_queues, settings.layer_map) == ("eager", 3, "equal-count")


def test_dlcp__presets_become_the_workloads_numbers() -> None:
    strict = MODEL.model_copy(update={"strict_loss_bound": 0.024})
    assert dlcp(loss_bound="quality").for_job(JOB, MODEL).transport(LAB).loss_bound == pytest.approx(0.1)
    assert dlcp(loss_bound="strict").for_job(JOB, strict).transport(LAB).loss_bound == pytest.approx(0.024)
    scheduled = dlcp(loss_bound_schedule=[["0 %", 0], ["20 %", "strict"]]).for_job(JOB, strict).transport(LAB)
    assert scheduled.loss_bound_schedule == ((0.0, 0.0), (0.2, 0.024))
    with pytest.raises(UnfitError, match="loss_bound: strict, but workload model has no strict_loss_bound"):
        dlcp(loss_bound="strict").for_job(JOB, MODEL)
    with pytest.raises(ValueError, match="needs a workload"):
        dlcp(loss_bound="strict").transport(LAB)


@pytest.mark.parametrize("knobs", [{"holes": "last"}, {"pull_loss_bound": "1 %"}])
def test_dlcp__what_a_ring_cannot_do_is_refused(knobs: dict[str, str]) -> None:
    dlcp(**knobs).for_job(JOB, MODEL)
    with pytest.raises(UnfitError, match=next(iter(knobs))):
        dlcp(**knobs).for_job(RING, MODEL)


@pytest.mark.parametrize("selective_drop", ["wred", "off"])
def test_dlcp__dctcp_needs_marks_and_drops_only_the_droppable(selective_drop: str) -> None:
    """Under dctcp every packet is ECN-capable: a profile that marks drops none of them."""
    intent = dlcp(congestion_control="dctcp", selective_drop=selective_drop, mark_from="20 %").intent(BUFFER_BYTES)
    reliable, protected, droppable = intent.queue(5).profiles
    for profile in (reliable, protected):
        assert profile is not None
        assert profile.mark
        assert profile.minimum_bytes == profile.maximum_bytes == 8_000
    assert droppable is not None
    assert droppable.mark == (selective_drop == "off")


def test_dlcp__timelys_thresholds_are_in_lab_time() -> None:
    settings = dlcp(t_low_s="1 ms", t_high_s="3 ms").transport(DILATED)
    assert (settings.t_low_s, settings.t_high_s) == (pytest.approx(0.001), pytest.approx(0.003))
    assert dlcp().transport(DILATED).t_low_s == 0, "0 leaves them to what is measured"


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"t_low_s": "1 ms"}, "given together"),
        ({"t_low_s": "3 ms", "t_high_s": "1 ms"}, "must lie between 0 and t_high_s"),
        ({"loss_bound_schedule": [["20 %", 0], ["20 %", 0.1]]}, "must grow from pair to pair"),
        ({"loss_bound": "most"}, "or strict, or quality"),
        ({"spraying": "source-ports", "load_balancing": "per-packet"}, "needs load_balancing: flow-hash"),
        ({"priority_queues": 8}, "less than or equal to 7"),
    ],
)
def test_dlcp__knobs_that_make_no_sense_are_refused(knobs: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        dlcp(**knobs)


def test_dlcp__spraying_by_source_ports_leaves_the_choice_to_flow_hashes() -> None:
    scheme = dlcp(spraying="source-ports", source_ports=6)
    assert scheme.intent(BUFFER_BYTES).load_balancing == "flow-hash"
    assert scheme.transport(LAB).source_ports == 6
    assert dlcp().transport(LAB).source_ports == 1


def test_dlcp__seven_queues_leave_only_the_control_queue() -> None:
    assert sorted(dlcp(priority_queues=7).intent(BUFFER_BYTES).queues) == list(range(8))


def test_dlcp__thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"droppable_from 0\.8 is above droppable_until 0\.4"):
        schemes.scheme_class("dlcp").model_validate({"droppable_from": 0.8})


@pytest.mark.parametrize("name", compression.names())
def test_compressed__is_its_method_over_tuned_tcp(name: str) -> None:
    scheme = schemes.scheme_class(name)().for_job(JOB, MODEL)
    tuned = schemes.scheme_class("tcp-tuned")()
    settings = scheme.transport(LAB)
    assert settings.compression is not None
    assert settings.compression.method == name
    assert settings.compression.step_share == compressor_class(name).step_share
    assert settings.model_copy(update={"compression": None}) == tuned.transport(LAB)
    assert scheme.hosts(LAB) == tuned.hosts(LAB)
    with pytest.raises(UnfitError, match="codes are merged by parameter servers, a ring has none"):
        scheme.for_job(RING, MODEL)


def test_compressed__knobs_reach_the_agents() -> None:
    knobs = {"levels": 3, "chunk": 64, "norm": "l2"}
    compression = schemes.scheme_class("qsgd").model_validate(knobs).transport(LAB).compression
    assert compression is not None
    assert compression.knobs == {"levels": 3, "chunk": 64, "norm": "l2"}
    compression = (
        schemes.scheme_class("dgc").model_validate({"ratio": "2 %", "warmup": "50 %"}).transport(LAB).compression
    )
    assert compression is not None
    assert compression.knobs == {"ratio": 0.02, "warmup": 0.5}


def test_dlcp__compression_is_of_fixed_length_and_has_no_other_holes() -> None:
    settings = dlcp(compression="topk", compression_ratio="5 %").for_job(JOB, MODEL).transport(LAB)
    assert settings.compression is not None
    assert (settings.compression.method, settings.compression.knobs) == ("topk", {"ratio": 0.05})
    assert dlcp().transport(LAB).compression is None
    for knobs in ({"holes": "last"}, {"holes": "rescale"}, {"pull_loss_bound": "1 %"}):
        with pytest.raises(ValidationError, match="compression needs holes: zero"):
            dlcp(compression="fp16", **knobs)
    for job in (RING, JOB.model_copy(update={"record_holes": True})):
        with pytest.raises(UnfitError, match="compression"):
            dlcp(compression="fp16").for_job(job, MODEL)


def test_dctcp__asks_the_kernel_for_it_and_switches_for_marks() -> None:
    scheme = schemes.scheme_class("dctcp")()
    hosts, settings = scheme.hosts(DILATED), scheme.transport(DILATED)
    assert hosts.sysctls["net.ipv4.tcp_congestion_control"] == settings.tcp_congestion_control == "dctcp"
    assert hosts.sysctls["net.ipv4.tcp_ecn"] == "1"
    assert settings.tcp_ecn
    assert hosts.rto_min_s == pytest.approx(0.005)
    (profile, *_) = scheme.intent(BUFFER_BYTES).queue(0).profiles
    assert profile is not None
    assert profile.mark
    assert profile.minimum_bytes == profile.maximum_bytes == 10_000


def test_dblp__checks_a_tenth_of_the_job_apart() -> None:
    scheme = schemes.scheme_class("dblp")()
    many = JOB.model_copy(update={"iterations": 200})
    assert scheme.for_job(many, MODEL).model_dump()["check_every"] == 20
    assert scheme.for_job(JOB, MODEL).model_dump()["check_every"] == 2
    with pytest.raises(ValidationError, match="check_every"):
        scheme.transport(LAB)
