"""`dlcp switch render`: find intent, system and device, and render."""

from __future__ import annotations

from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.loading.explain import did_you_mean
from dlcp.switches.vendor.files import example_device, find_intent, load_device, load_intent
from dlcp.switches.vendor.render import Rendered, render
from dlcp.switches.vendor.systems import load_system, system_names


def render_intent(intent: str, system: str | None, device_file: Path | None, *, degrade: bool = False) -> Rendered:
    """An intent, by name or path, for a device: that of a file, or the example of a system.

    degrade: whatever the intent says, do what the system declares instead of what it lacks. Raises Problem or Problems
    when anything is unknown or wrong, or the device cannot do the intent.
    """
    wanted = load_intent(find_intent(intent))
    if degrade:
        wanted = wanted.model_copy(update={"on_unsupported": "degrade"})
    if device_file is None and system is None:
        hint = f"{did_you_mean('', system_names())}; or --device, a file as switch_configs/<os>/example.yaml"
        raise Problem("--os", "say for which switch system", hint)
    loaded = None if system is None else load_system(system)
    if device_file is None:
        assert loaded is not None
        device = example_device(loaded)
    else:
        device = load_device(device_file)
    return render(wanted, device, system=loaded)
