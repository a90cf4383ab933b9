"""What a scheme must say of itself: transport, tagging, QoS intent, load balancing, host settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from dlcp.model.base import Frozen
from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Job, Workload
from dlcp.patterns import names_where, pattern_of


class UnfitError(ValueError):
    """A knob's value that cannot do for a job: the knob, what is wrong, what to do."""

    def __init__(self, knob: str, what: str, hint: str) -> None:
        super().__init__(f"{knob}: {what}")
        self.knob = knob
        self.what = what
        self.hint = hint


def refuse_all_but_servers(job: Job) -> None:
    """UnfitError for a job whose gradients are not summed by parameter servers."""
    pattern = pattern_of(job.pattern)
    if not pattern.sums_at_servers:
        what = f"codes are merged by parameter servers, {pattern.a_name} has none"
        raise UnfitError("compression", what, f"pattern: {names_where(lambda other: other.sums_at_servers)}")


def settings_for(scheme: Scheme, scaling: Scaling) -> TransportSettings:
    """What a scheme's agents open, with the time dilation that they stretch its times and their own constants by. Only
    after for_job."""
    return scheme.transport(scaling).model_copy(update={"time_dilation": scaling.time_dilation})


def hosts_for(schemes: Sequence[Scheme], scaling: Scaling) -> HostSettings:
    """What hosts are set to when some schemes run at once, in emulated time: those that ask for anything must ask for
    the same. ValueError when they do not."""
    asked = [settings for scheme in schemes if (settings := scheme.hosts(scaling)) != HostSettings()]
    if any(settings != asked[0] for settings in asked):
        raise ValueError("schemes that run at once ask for different settings of the hosts' network stacks")
    return (asked[0] if asked else HostSettings()).dilated(scaling.time_dilation)


class Scheme(Frozen):
    """One way to move gradients. Its fields are its knobs, each with a description; all have defaults.

    A subclass stands alone in its file as `SCHEME`.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    mechanism: ClassVar[str]
    kind: ClassVar[Literal["tcp", "dlcp", "masked"]]
    needs_network: ClassVar[bool] = True
    """Whether its packets cross a network: it runs on substrates that have one, or else on those that have none."""
    is_dlcp: ClassVar[bool] = False
    """Whether it is DLCP, a part or a variant of it: reports compare such schemes with all others."""

    def for_job(self, job: Job, workload: Workload) -> Self:
        """The scheme with all filled in that its knobs leave to the job. UnfitError when a knob cannot do for it."""
        return self

    def inputs(self) -> dict[str, str]:
        """Files that its runs depend on besides its knobs: name → what the content hashes to."""
        return {}

    @abstractmethod
    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """What every switch port should do; sizes follow from the port's buffer."""

    @abstractmethod
    def transport(self, scaling: Scaling) -> TransportSettings:
        """What the agents open; times are lab seconds (settings_for adds the dilation). Only after for_job."""

    @abstractmethod
    def hosts(self, scaling: Scaling) -> HostSettings:
        """What is set in every host's network stack; times are lab seconds (hosts_for dilates them)."""
