"""What can be asked of a box. Each verb takes a mapping and returns one, both for JSON; problems are raised."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from dlcp.errors import MachineCannot, Problem
from dlcp.model.base import Frozen
from dlcp.switches import rollback_timer
from dlcp.switches.linux import counting, install
from dlcp.switches.linux.drift import View, differences
from dlcp.switches.linux.facts import facts as facts_of
from dlcp.switches.linux.guard import check_ports
from dlcp.switches.linux.links import links
from dlcp.switches.linux.state import KEPT_DEPLOYMENTS, Kept, Saved, Store, to_json
from dlcp.switches.linux.wanted import Wanted, parse

ORIGINAL, PREVIOUS = "original", "previous"
_LONGEST_TIMER_S = 24 * 3600.0

_BY_HAND = "by hand: switch_configs/linux/README.md"
_LOST = "what was written down of it is lost"


class Request(Frozen):
    """What verbs are told; each uses some of it.

    configuration: as rendered, or its text. digest: of intent and configuration, to be kept. deployment: its id.
    restore_after_s: unless confirmed by then, the box restores by itself; 0 = no timer. management: interfaces that are
    never touched. ports: to tell of. to: "previous" = what the deployment found, "original" = nothing of ours.
    timed: the box's own timer asks.
    """

    configuration: dict[str, Any] | str | None = None
    digest: str = ""
    deployment: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    restore_after_s: float = Field(default=0.0, ge=0, le=_LONGEST_TIMER_S)
    management: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    to: str = Field(default=PREVIOUS, pattern=f"^({PREVIOUS}|{ORIGINAL})$")
    timed: bool = False


def facts(request: Request, store: Store) -> dict[str, Any]:
    """The machine, its ports, and what is in force. Raises MachineCannot when its state could not be kept."""
    if not os.access(store.folder, os.W_OK):
        raise MachineCannot(str(store.folder), "cannot be written", "look at its file system")
    return facts_of(request.ports, links()) | _in_force(store)


def diff(request: Request, store: Store) -> dict[str, Any]:
    """What `apply` would change: a text, "" when nothing."""
    wanted, asked = _wanted(request)
    kept = store.state.kept
    text = _compared(kept.configuration, asked)
    if wanted is not None:
        check_ports(wanted.ports, request.management, links())
    drifted = differences(store.state, parse(kept.configuration)) if not text else []
    text += "".join(f"drift: {one}\n" for one in drifted)
    if not text and kept.digest != _digest(request, asked):
        text = f"digest: {kept.digest} → {_digest(request, asked)}\n"
    return {"changed": bool(text), "diff": text, "digest": kept.digest}


def apply(request: Request, store: Store) -> dict[str, Any]:
    """Carry a configuration out; save what was there before; restore that unless it is confirmed in time."""
    wanted, asked = _wanted(request)
    state, deployment = store.state, request.deployment or ""
    if deployment in state.undone:
        raise Problem("this box", f"deployment {deployment} was taken back before it came", "deploy again")
    if state.pending and state.pending != deployment:
        left_s = rollback_timer.left_s(str(store.folder))
        when = "its timer has run out" if left_s is None else f"{left_s:.0f} s left"
        what = f"deployment {state.pending} waits to be confirmed ({when})"
        raise Problem("this box", what, "confirm or restore that one first")
    if wanted is not None:
        check_ports(wanted.ports, request.management, links())
    kept = Kept(
        configuration=asked,
        digest=_digest(request, asked),
        intent=wanted.intent if wanted else "",
        deployment=deployment,
    )
    if unknown := _unknown_ports(store):
        what = f"{', '.join(unknown)} has programs of ours, and {_LOST}"
        raise Problem("this box", what, 'restore {"to": "original"}')
    same = state.kept.configuration == asked and not state.changing and not differences(state, wanted)
    same_words = (kept.digest, kept.intent) == (state.kept.digest, state.kept.intent)
    if state.saved_by(deployment) is None or not deployment:
        found = Saved(deployment=deployment, before=state.kept, nothing_to_do=same and same_words)
        store.write(saved=(*state.saved, found)[-KEPT_DEPLOYMENTS:])
    if same and same_words:
        return {"changed": False, "digest": kept.digest}
    _arm(request, store, deployment)
    if not same:
        store.write(changing=True, lost=None)
        _carry_out(store, wanted)
    store.write(kept=kept, changing=False)
    return {"changed": True, "digest": kept.digest}


def confirm(request: Request, store: Store) -> dict[str, Any]:
    """Keep what was applied: the timer ends. Raises Problem when it has run out, and things are as they were before."""
    state, deployment = store.state, request.deployment or store.state.pending
    if state.pending and state.pending == deployment:
        if rollback_timer.left_s(str(store.folder)) is None:
            what = f"the timer of deployment {deployment} has run out: the box goes back to what was there before"
            raise Problem("this box", what, "look: `read`; where it still says so, `restore`; then deploy again")
        store.write(pending="")  # from here on the timer's restore does nothing
        rollback_timer.stop(str(store.folder))
        return {"changed": True, "digest": state.kept.digest}
    if state.kept.deployment == deployment or (not deployment and not state.pending):
        return {"changed": False, "digest": state.kept.digest}
    saved = state.saved_by(deployment)
    if saved is not None and saved.nothing_to_do and saved.before == state.kept:
        return {"changed": False, "digest": state.kept.digest}
    what = f"deployment {deployment} is not in force here"
    raise Problem("this box", what, "it was restored, by its timer or by somebody; deploy again")


def restore(request: Request, store: Store) -> dict[str, Any]:
    """Go back to what a deployment found, or to nothing of ours. Nothing when that is so. One that never came here will
    not be applied when it does."""
    state = store.state
    if request.timed and (not state.pending or state.pending != request.deployment):
        return {"changed": False, "digest": state.kept.digest}
    before = Kept() if request.to == ORIGINAL else state.before(request.deployment or "")
    if before is None:
        if request.deployment:
            with contextlib.suppress(OSError):  # what cannot be written now cannot be applied either
                store.write(undone=(*state.undone, request.deployment)[-KEPT_DEPLOYMENTS:])
        return {"changed": False, "digest": state.kept.digest}
    store.goes_on = True
    wanted = parse(before.configuration)
    same = not state.changing and state.kept.configuration == before.configuration and not differences(state, wanted)
    here = wanted if same else _without_gone(wanted)
    if not same:
        store.write(changing=True)
        _carry_out(store, here)
    store.write(kept=before, changing=False, pending="")
    rollback_timer.stop(str(store.folder))  # until here it would try again what a kill breaks off
    if store.unwritten is not None:
        what = f"is as it was, but that could not be written down: {store.unwritten.strerror}"
        raise MachineCannot(str(store.folder), what, "make room on its disk and restore again")
    if wanted is not None and (gone := wanted.ports.keys() - (here.ports.keys() if here else set())):
        what = f"is as it was but for {', '.join(sorted(gone))}: there is no such interface any more"
        raise Problem("this box", what, 'plug it in and restore again, or restore {"to": "original"}')
    return {"changed": not same or state.kept.digest != before.digest, "digest": before.digest}


def read(request: Request, store: Store) -> dict[str, Any]:
    """What is in force, and how the kernel differs from it. remarks: what is no difference, but should be known. state:
    all that was kept, for a backup."""
    state, view = store.state, View()
    found = differences(state, parse(state.kept.configuration), view)
    silent = [name for name in state.inner if name in view.links and not view.links[name].carrier]
    remarks = [f"{name} has no link: what it is told to send is lost behind the account" for name in silent]
    if state.changing:
        found.insert(0, "a change was broken off half-way: apply or restore again")
    if state.lost is not None:
        found.insert(0, f"the box was started anew since deployment {state.lost.deployment}: nothing of it is left")
    return {**_in_force(store), "differences": found, "remarks": remarks, "state": state.model_dump(mode="json")}


def counters(request: Request, store: Store) -> dict[str, Any]:
    """Rows of the table `ports`, and what stands beside the account."""
    return counting.counters(store, View())


def reset(request: Request, store: Store) -> dict[str, Any]:
    """Count from here."""
    counting.reset(store, View())
    return {"changed": True}


VERBS: dict[str, Callable[[Request, Store], dict[str, Any]]] = {
    one.__name__: one for one in (facts, diff, apply, confirm, restore, read, counters, reset)
}


def request_from(told: Any) -> Request:
    """A request as it was sent. Raises Problem that names what is wrong."""
    try:
        return Request.model_validate({} if told is None else told)
    except ValidationError as error:
        words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise Problem("request", words, f"it may say {', '.join(Request.model_fields)}") from error


def _wanted(request: Request) -> tuple[Wanted | None, dict[str, Any] | None]:
    """The configuration, checked, and as it is kept; None, None for nothing of ours."""
    if request.configuration is None:
        raise Problem("request", "has no configuration", "say configuration, as rendered")
    wanted = parse(request.configuration)
    return wanted, None if wanted is None else json.loads(wanted.model_dump_json())


def _digest(request: Request, asked: dict[str, Any] | None) -> str:
    return request.digest if asked is not None else ""


def _in_force(store: Store) -> dict[str, Any]:
    state, left_s = store.state, rollback_timer.left_s(str(store.folder))
    waiting = {"deployment": state.pending, "until_s": left_s} if state.pending and left_s is not None else None
    kept = state.kept
    return {"digest": kept.digest, "deployment": kept.deployment, "intent": kept.intent, "pending": waiting}


def _compared(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    old, new = (to_json(one).splitlines() if one is not None else [] for one in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(old, new, "in force", "wanted", lineterm="", n=2))


def _arm(request: Request, store: Store, deployment: str) -> None:
    """Before anything is touched."""
    if not request.restore_after_s:
        return
    if not deployment:
        raise Problem("request", "restore_after_s without a deployment's id", "say deployment")
    state = str(store.folder.parent)
    command = [sys.executable, "-m", "dlcp.switches.linux", "restore", "--state", state, "--timed", deployment]
    try:
        rollback_timer.start(str(store.folder), request.restore_after_s, _at_home(command), deployment)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MachineCannot("this box", f"no timer can be set: {error}", "nothing has been changed") from error
    store.write(pending=deployment)


def _at_home(command: list[str]) -> list[str]:
    """The command with this package's own folder on its path, wherever it is started."""
    return ["/usr/bin/env", f"PYTHONPATH={Path(__file__).parents[3]}", *command]


def _carry_out(store: Store, wanted: Wanted | None) -> None:
    if wanted is not None:
        install.install(store, wanted)
        install.restore_ports(store, set(wanted.ports))
        return
    unknown = _unknown_ports(store)
    install.remove(store)
    install.restore_ports(store, set())
    if unknown:
        store.write(kept=Kept(), changing=False)
        what = f"{_LOST}: all of ours is off, but whether {', '.join(unknown)} had offloads and clsact is not known"
        raise Problem("this box", what, f"ethtool -K PORT gro on gso on tso on, if they were; {_BY_HAND}")
    if left := differences(store.state, None):
        raise Problem("this box", f"something of ours is left: {'; '.join(left)}", _BY_HAND)


def _without_gone(wanted: Wanted | None) -> Wanted | None:
    """A configuration for the ports that are still there; None when there are none."""
    if wanted is None:
        return None
    present = links()
    ports = {name: port for name, port in wanted.ports.items() if name in present}
    return wanted.model_copy(update={"ports": ports}) if ports else None


def _unknown_ports(store: Store) -> list[str]:
    """Ports with programs of ours of which nobody wrote down how they were before."""
    return [name for name in View().hooked_ports() if name not in store.state.original]
