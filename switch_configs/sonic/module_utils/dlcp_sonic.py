"""One SONiC switch and one deployment: apply with a timer, confirm, restore, read. Runs on the switch.

Kept in a folder of the switch: `kept.json` (what is deployed), `before-DEPLOYMENT.json` (what that deployment found),
`restore.sh` (what the timer runs, and a person may), the timer, and a lock that all of them hold while they change
something. CONFIG_DB itself has no place for them: a table that the YANG models do not know would stop the Generic
Config Updater.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ansible.module_utils import dlcp_timer as timer
from ansible.module_utils.dlcp_redis import Redis, RedisError, for_redis_cli, read_tables, transaction
from ansible.module_utils.dlcp_tables import difference, intended, operations, scope_of, with_scope
from ansible.module_utils.private_folder import make_private, replace_file

KEPT, RESTORE, UNDO, LOCK = "kept.json", "restore.sh", "undo.redis", "lock"
DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Ids of deployments, which name files, checkpoints and units."""
LOCK_POLL_S = 0.05
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
        self._held: tuple[int, ...] = ()
        make_private(self.folder)

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
        left, name = timer.left_s(self.folder), timer.armed_for(self.folder)
        return None if left is None else {"deployment": name, "until_s": round(left, 1)}

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
        with self._alone(deployment):
            return self._apply(patch, digest, deployment, restore_after_s)

    def confirm(self, deployment: str) -> bool:
        """Disarm the timer. RefusedError when it has run out, or another deployment is there."""
        with self._alone(deployment):
            kept = self.kept()
            if kept is None or kept["deployment"] != deployment or timer.ran_out(self.folder):
                raise RefusedError(
                    f"deployment {deployment} is not there: its time ran out, or it was taken back", "deploy again"
                )
            return timer.stop(self.folder)

    def restore(self, deployment: str, *, original: bool) -> bool:
        """Back to what a deployment found, or to what was there before anything of ours. False where it is so already,
        or the deployment never came here. RefusedError when the tables are not so afterwards."""
        with self._alone("" if original else deployment):
            return self._restore(deployment, original=original)

    def _apply(self, patch: dict[str, Any], digest: str, deployment: str, restore_after_s: float) -> bool:
        waiting, pending = timer.armed_for(self.folder), self.pending()
        if waiting is not None and waiting != deployment:
            when = f"is taken back in {pending['until_s']} s" if pending else "its timer has not taken it back"
            raise RefusedError(
                f"deployment {waiting} is not confirmed, and {when}",
                f"confirm it, or restore it: dlcp switch rollback --deployment {waiting}",
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
        if pending is None:  # else this deployment was cut short: what it found is saved
            self._save(f"before-{deployment}.json", before)
        self._forget()
        if kept and kept["digest"] == digest and live == wanted:
            self._save(KEPT, made)
            return False
        self._arm(deployment, live, wanted, restore_after_s)
        self._save(KEPT, made)
        self._write(live, wanted, lambda: self._restore(deployment, original=False))
        return True

    def _restore(self, deployment: str, *, original: bool) -> bool:
        kept = self.kept()
        saved = None if original else self._load(f"before-{deployment}.json")
        if saved is None and not (original and kept):
            return False
        assert original or saved
        scope = kept["original"] if original and kept else (saved or {})["scope"]
        live = self.live()
        wanted = with_scope(live, scope, self.ports)
        self._write(live, wanted, None)
        earlier = None if original or saved is None else saved["kept"]
        if earlier:
            self._save(KEPT, earlier)
        elif kept:
            os.remove(self._path(KEPT))
        timer.stop(self.folder)  # until here the switch's own way back is there
        if os.path.exists(self._path(RESTORE)):
            os.remove(self._path(RESTORE))
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
        except Exception as error:
            if undo is None:
                raise
            try:
                undo()
            except (RefusedError, RedisError, OSError) as second:
                left_s = timer.left_s(self.folder)
                hint = f"the switch takes it back by itself in {left_s:.0f} s" if left_s else "restore it"
                raise RefusedError(f"{error}; to take that back failed too: {second}", hint) from error
            raise

    def _patch(self, steps: list[dict[str, Any]], *options: str) -> None:
        path = self._path("patch.json")
        replace_file(path, json.dumps(steps, indent=1).encode())
        self._config("apply-patch", *options, path)

    def _config(self, *words: str) -> None:
        try:
            done = subprocess.run(
                [*self.command, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=UPDATER_LIMIT_S,
                pass_fds=self._held,
            )
        except subprocess.TimeoutExpired:
            raise RefusedError(f"`config {words[0]}` did not end within {UPDATER_LIMIT_S:.0f} s") from None
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
        """Write down how to go back, and start the timer that does it. One that is armed already knows better."""
        if timer.armed_for(self.folder) == deployment:
            return
        if self.writer == "gcu":
            self._config("checkpoint", f"dlcp-{deployment}")
            steps = [f"{shlex.join(self.command)} rollback dlcp-{deployment}"]
        else:
            steps = self._undo_by_redis(transaction(wanted, live))
        kept, aside = shlex.quote(self._path(KEPT)), shlex.quote(self._path("kept.before.json"))
        if self.kept() is None:
            steps.append(f"rm -f {kept}")
        else:
            with open(self._path(KEPT), "rb") as file:
                replace_file(self._path("kept.before.json"), file.read())
            steps.append(f"cp {aside} {kept}")
        self._write_script(deployment, steps)
        try:
            timer.start(self.folder, restore_after_s, ["/bin/sh", self._path(RESTORE), "timer"], deployment)
        except (OSError, subprocess.CalledProcessError) as error:
            raise RefusedError(f"no timer can be set: {error}", "nothing has been changed") from None

    def _undo_by_redis(self, commands: list[list[str]]) -> list[str]:
        """Shell lines. redis-cli ends with status 0 whatever redis says, or when there is none: so its words count."""
        if not commands:
            return []
        replace_file(self._path(UNDO), for_redis_cli(commands).encode())
        source = shlex.quote(self._path(UNDO))
        return [
            f"said=$(redis-cli -s {shlex.quote(self.socket)} -n {self.database} < {source} 2>&1)",
            'case "$said" in OK*QUEUED*) ;; *) echo "$said" >&2; exit 1 ;; esac',
            """if echo "$said" | grep -qvE '^(OK|QUEUED|[0-9]*)$'; then echo "$said" >&2; exit 1; fi""",
        ]

    def _write_script(self, deployment: str, steps: list[str]) -> None:
        """restore.sh: alone with the lock; as the timer's, nothing unless that still waits for this deployment."""
        armed, script = shlex.quote(self._path(timer.FILE)), shlex.quote(self._path(RESTORE))
        name = shlex.quote(f'"name": {json.dumps(deployment)}')
        lines = [
            "#!/bin/sh",
            "# Takes the last deployment back. Run by its timer, or by hand: sudo sh restore.sh",
            "set -e",
            f"exec 9>>{shlex.quote(self._path(LOCK))}",
            "flock 9",
            f'if [ "$1" = timer ] && ! grep -qF {name} {armed}; then exit 0; fi',
            *steps,
            f"rm -f {armed} {script}",
        ]
        replace_file(self._path(RESTORE), "".join(f"{line}\n" for line in lines).encode())

    @contextmanager
    def _alone(self, deployment: str) -> Iterator[None]:
        """Hold the lock. The updater inherits it: it goes on when this process is killed, and nobody is to run beside
        it. deployment: an id to look at first; "" for none. Raises RefusedError."""
        if deployment and not DEPLOYMENT.fullmatch(deployment):
            raise RefusedError(f"{deployment!r} is no id of a deployment", "letters, digits, dots, dashes: at most 64")
        descriptor = os.open(self._path(LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + UPDATER_LIMIT_S
            while not _locked(descriptor):
                if time.monotonic() > deadline:
                    raise RefusedError("another change of this switch does not end", f"look: fuser {self._path(LOCK)}")
                time.sleep(LOCK_POLL_S)
            self._held = (descriptor,)
            yield
        finally:
            self._held = ()
            os.close(descriptor)

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
        except ValueError as error:
            raise RefusedError(
                f"{self._path(name)} is broken: {error}", "move it away; then nothing of ours is known"
            ) from None

    def _save(self, name: str, what: dict[str, Any]) -> None:
        replace_file(self._path(name), json.dumps(what).encode())


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
