"""One SONiC switch and one deployment: apply with a timer, confirm, restore, read. Runs on the switch.

Kept in a folder of the switch: `kept.json` (what is deployed), `before-DEPLOYMENT.json` (what that deployment found),
`restore.sh` (what the timer runs, and a person may), and the timer. CONFIG_DB itself has no place for them: a table
that the YANG models do not know would stop the Generic Config Updater.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

from ansible.module_utils import dlcp_timer as timer
from ansible.module_utils.dlcp_redis import Redis, for_redis_cli, read_tables, transaction
from ansible.module_utils.dlcp_tables import difference, intended, operations, scope_of, with_scope

KEPT, RESTORE = "kept.json", "restore.sh"
STATES_KEPT = 8
"""Of so many deployments what they found is kept."""
UPDATER_LIMIT_S = 900.0
"""The Generic Config Updater sorts its operations by trial and takes minutes for hundreds."""
VALIDATOR = "validating function"
"""In what the updater says when its list of changeable fields has not this one."""


class RefusedError(Exception):
    """Something a person must act on: what, and what to do next."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)


class Switch:
    """words: of the module. `writer`: gcu, or direct (one redis transaction, checked by no model of the switch's)."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.ports: list[str] = words["ports"]
        self.folder: str = words["folder"]
        self.socket: str = words["socket"]
        self.database: int = words["database"]
        self.command: list[str] = shlex.split(words["config_command"])
        self.writer: str = words["writer"]

    # --- what is there

    def live(self) -> dict[str, Any]:
        """All of CONFIG_DB."""
        try:
            with Redis(self.socket, self.database) as redis:
                return read_tables(redis)
        except OSError as error:
            raise RefusedError(
                f"CONFIG_DB does not answer on {self.socket}: {error}", "is the database container up?"
            ) from None

    def kept(self) -> dict[str, Any] | None:
        """What was deployed last: digest, deployment, scope (as it was made), original (before anything of ours)."""
        return self._load(KEPT)

    def pending(self) -> dict[str, Any] | None:
        """The deployment that nobody has confirmed yet, and how long it has."""
        left, kept = timer.left_s(self.folder), self.kept()
        return None if left is None or kept is None else {"deployment": kept["deployment"], "until_s": round(left, 1)}

    def differences(self) -> list[str]:
        """What CONFIG_DB says otherwise than was deployed."""
        kept = self.kept()
        if kept is None:
            return []
        now = scope_of(self.live(), self.ports)
        return difference(kept["scope"], now, ("deployed", "found")).splitlines()[2:]

    # --- what is to be

    def check(self, patch: dict[str, Any]) -> None:
        """Ports and buffer pools that a configuration speaks of are there. RefusedError when not."""
        live = self.live()
        absent = [port for port in self.ports if port not in live.get("PORT", {})]
        if absent:
            raise RefusedError(f"PORT has no {', '.join(absent)}", "correct dlcp_ports in the inventory")
        pools = {row["pool"] for row in patch.get("BUFFER_PROFILE", {}).values() if row}
        if lost := sorted(pools - set(live.get("BUFFER_POOL", {}))):
            raise RefusedError(
                f"BUFFER_POOL has no {', '.join(lost)}", "load the platform's buffers: config qos reload"
            )
        if self.writer == "gcu":
            self._config("apply-patch", "--help")

    def plan(self, patch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """CONFIG_DB as it is, and as a configuration wants it."""
        live, kept = self.live(), self.kept()
        original = kept["original"] if kept else scope_of(live, self.ports)
        return live, with_scope(live, intended(patch, original, self.ports), self.ports)

    def diff(self, patch: dict[str, Any], digest: str) -> str:
        """What would change; "" where nothing would. RefusedError when the switch's own updater would not do it."""
        live, wanted = self.plan(patch)
        if self.writer == "gcu" and (steps := operations(live, wanted)):
            self._patch(steps, "--dry-run")
        text = difference(live, wanted, ("CONFIG_DB", "intended"))
        found = (self.kept() or {}).get("digest", "")
        return text if found == digest else f"digest: {found or 'none'} becomes {digest}\n{text}"

    # --- what is done

    def apply(self, patch: dict[str, Any], digest: str, deployment: str, restore_after_s: float) -> bool:
        """Make it so, with a timer that takes it back. False where all was so already.

        Whatever fails leaves the tables as they were, or the timer armed to make them so.
        """
        if (pending := self.pending()) and pending["deployment"] != deployment:
            raise RefusedError(
                f"deployment {pending['deployment']} is not confirmed, and taken back in {pending['until_s']} s",
                "confirm it, restore it, or wait",
            )
        live, wanted = self.plan(patch)
        kept = self.kept()
        if pending and kept and kept["digest"] == digest and live == wanted:
            return False
        before = {"kept": kept, "scope": scope_of(live, self.ports)}
        made = {
            "digest": digest,
            "deployment": deployment,
            "scope": scope_of(wanted, self.ports),
            "original": kept["original"] if kept else before["scope"],
        }
        self._save(f"before-{deployment}.json", before)
        self._forget()
        if kept and kept["digest"] == digest and live == wanted:
            self._save(KEPT, made)
            return False
        self._arm(deployment, live, wanted, restore_after_s)
        self._save(KEPT, made)
        self._write(live, wanted, lambda: self.restore(deployment, original=False))
        return True

    def confirm(self, deployment: str) -> bool:
        """Disarm the timer. RefusedError when it has run out, or another deployment is there."""
        kept = self.kept()
        if kept is None or kept["deployment"] != deployment or timer.ran_out(self.folder):
            raise RefusedError(
                f"deployment {deployment} is not there: its time ran out, or it was taken back", "deploy again"
            )
        return timer.stop(self.folder)

    def restore(self, deployment: str, *, original: bool) -> bool:
        """Back to what a deployment found, or to what was there before anything of ours. False where it is so already,
        or the deployment never came here. RefusedError when the tables are not so afterwards."""
        kept = self.kept()
        saved = None if original else self._load(f"before-{deployment}.json")
        if saved is None and not (original and kept):
            return False
        assert original or saved
        scope = kept["original"] if original and kept else (saved or {})["scope"]
        live = self.live()
        wanted = with_scope(live, scope, self.ports)
        left_s = timer.left_s(self.folder)
        timer.stop(self.folder)
        try:
            self._write(live, wanted, None)
        except Exception:
            if left_s is not None:  # the switch's own way back is still there
                timer.start(self.folder, left_s, ["/bin/sh", self._path(RESTORE)], deployment)
            raise
        if os.path.exists(self._path(RESTORE)):
            os.remove(self._path(RESTORE))
        earlier = None if original or saved is None else saved["kept"]
        if earlier:
            self._save(KEPT, earlier)
        elif kept:
            os.remove(self._path(KEPT))
        return bool(live != wanted) or kept != earlier

    # --- how

    def _write(self, live: dict[str, Any], wanted: dict[str, Any], undo: Callable[[], Any] | None) -> None:
        """Carry the difference out and read it back. What fails is undone."""
        try:
            if steps := operations(live, wanted):
                if self.writer == "gcu":
                    self._patch(steps)
                else:
                    with Redis(self.socket, self.database) as redis:
                        redis.ask(transaction(live, wanted))
            found = scope_of(self.live(), self.ports)
            if wrong := difference(scope_of(wanted, self.ports), found, ("written", "read back")):
                raise RefusedError(f"CONFIG_DB is not as it was written: {wrong}", "something else writes these rows")
        except Exception:
            if undo is not None:
                undo()
            raise

    def _patch(self, steps: list[dict[str, Any]], *options: str) -> None:
        path = self._path("patch.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(steps, file, indent=1)
        self._config("apply-patch", *options, path)

    def _config(self, *words: str) -> None:
        try:
            done = subprocess.run(
                [*self.command, *words], capture_output=True, text=True, check=False, timeout=UPDATER_LIMIT_S
            )
        except OSError as error:
            raise RefusedError(f"`config` does not run: {error}", "is this SONiC 202111 or later?") from None
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            hint = "the switch's log has the whole of it"
            if VALIDATOR in said:
                hint = (
                    "this image's Generic Config Updater has a list of fields that may be changed, these are not in "
                    "it; dlcp_sonic_writer: direct writes them in one redis transaction, checked by our schema alone"
                )
            raise RefusedError(f"`config {words[0]}` failed ({done.returncode}): {said}", hint)

    def _arm(self, deployment: str, live: dict[str, Any], wanted: dict[str, Any], restore_after_s: float) -> None:
        """Write down how to go back, and start the timer that does it."""
        shell = [
            "#!/bin/sh",
            "# Takes the last deployment back. Run by its timer, or by hand: sudo sh restore.sh",
            "set -e",
        ]
        if self.writer == "gcu":
            checkpoint = f"dlcp-{deployment}"
            self._config("checkpoint", checkpoint)
            shell.append(f"{shlex.join(self.command)} rollback {checkpoint}")
        else:
            with open(self._path("undo.redis"), "w", encoding="utf-8") as file:
                file.write(for_redis_cli(transaction(wanted, live)))
            shell.append(f"redis-cli -s {shlex.quote(self.socket)} -n {self.database} < {self._path('undo.redis')}")
        if self.kept() is None:
            shell.append(f"rm -f {self._path(KEPT)}")
        else:
            _copy(self._path(KEPT), self._path("kept.before.json"))
            shell.append(f"cp {self._path('kept.before.json')} {self._path(KEPT)}")
        shell.append(f"rm -f {self._path(RESTORE)}")
        with open(self._path(RESTORE), "w", encoding="utf-8") as file:
            file.write("\n".join(shell) + "\n")
        timer.start(self.folder, restore_after_s, ["/bin/sh", self._path(RESTORE)], deployment)

    def _forget(self) -> None:
        """Leave what the last deployments found."""
        saved = [os.path.join(self.folder, name) for name in os.listdir(self.folder) if name.startswith("before-")]
        for path in sorted(saved, key=os.path.getmtime)[:-STATES_KEPT]:
            os.remove(path)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _load(self, name: str) -> dict[str, Any] | None:
        try:
            with open(self._path(name), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    def _save(self, name: str, what: dict[str, Any]) -> None:
        with open(self._path(name) + ".new", "w", encoding="utf-8") as file:
            json.dump(what, file)
        os.replace(self._path(name) + ".new", self._path(name))


def _copy(source: str, target: str) -> None:
    """The file, whole or not at all."""
    with open(source, "rb") as file:
        text = file.read()
    with open(target + ".new", "wb") as file:
        file.write(text)
    os.replace(target + ".new", target)
