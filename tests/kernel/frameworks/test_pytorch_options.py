"""What a user chooses for DLCP in PyTorch, and what is found out about the host: no ranks needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.frameworks.pytorch.address import DEFAULT_LINK_RATE_BPS, find_link, interface_of, speed_bps
from dlcp.frameworks.pytorch.options import DlcpOptions
from dlcp.transport.contract.endpoint import Bound


def test_environment__is_read_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCP_LOSS_BOUND", "5 %")
    monkeypatch.setenv("DLCP_ENERGY_BOUND", "0.02")
    monkeypatch.setenv("DLCP_LINK_RATE", "25 Gbit/s")
    monkeypatch.setenv("DLCP_STRICT", "1")
    monkeypatch.setenv("DLCP_SOURCE_PORTS", "4")
    options = DlcpOptions()
    assert options.bound(0.5) == Bound(0.05, 0.02)
    assert (options.link_rate_bps, options.strict) == (25e9, True)
    settings = options.settings(0.5)
    assert (settings.loss_bound, settings.energy_bound, settings.source_ports) == (0.05, 0.02, 4)
    assert DlcpOptions(loss_bound=0.0).bound(0.5) == Bound(0.0, 0.02)


def test_loss_bound__left_open_is_what_the_use_takes() -> None:
    assert DlcpOptions().bound(0.1).bytes_share == 0.1
    assert DlcpOptions().bound(0.0).bytes_share == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOSS_BOUND", "7"),
        ("LINK_RATE", "25"),
        ("STRICT", "perhaps"),
        ("QUEUES", "9"),
        ("HOLES", "odd"),
        ("SILENCE", "0"),
    ],
)
def test_environment__a_wrong_value_is_an_error(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DLCP_{name}", value)
    if (name, value) == ("LINK_RATE", "25"):
        with pytest.raises(ValueError, match="DLCP_LINK_RATE='25'"):
            DlcpOptions()
    else:
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            DlcpOptions()


def test_agreed__leaves_out_what_is_a_hosts_own_affair() -> None:
    one = DlcpOptions(address="10.0.0.1", link_rate_bps=1e9, strict=True)
    other = DlcpOptions(address="10.0.0.2", link_rate_bps=25e9)
    assert one.agreed() == other.agreed()
    assert DlcpOptions(loss_bound=0.1).agreed() != other.agreed()


def test_link__loopback_has_a_stated_default_rate() -> None:
    link = find_link("127.0.0.1", None, None)
    assert (link.address, link.rate_bps, link.rate_is_assumed) == ("127.0.0.1", DEFAULT_LINK_RATE_BPS, True)
    assert "lo does not tell" in link.rate_from
    chosen = find_link("127.0.0.1", "127.0.0.7", 1e9)
    assert (chosen.address, chosen.rate_bps, chosen.rate_is_assumed) == ("127.0.0.7", 1e9, False)


def test_interface__is_found_by_its_address() -> None:
    assert interface_of("127.0.0.3") == "lo"
    assert interface_of("203.0.113.77") is None  # set aside for documentation (RFC 5737)
    link = find_link("203.0.113.77", None, None) if _has_a_default_route() else None
    if link is not None:
        assert interface_of(link.address) in [path.name for path in Path("/sys/class/net").iterdir()]


def test_speed__is_not_taken_from_what_makes_it_up() -> None:
    assert speed_bps("lo") is None


def test_route__without_one_the_error_says_what_to_set() -> None:
    with pytest.raises(ValueError, match="DLCP_ADDRESS"):
        find_link("no-such-host.invalid", None, None)


def _has_a_default_route() -> bool:
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    return any(line.split()[1] == "00000000" for line in routes)
