"""Training in one process without a network, losses by rule."""

from dlcp.substrates.base import Traits
from dlcp.substrates.inprocess.substrate import runs_at_once

TRAITS = Traits(has_network=False, usual=True, at_once=runs_at_once)
