"""`python -m dlcp.switches.bpf.build`: compile native/switch/switch.bpf.c into switch.bpf.o, and
native/switch/box.bpf.c into box.bpf.o.

Only a change of these programs needs this; the objects are part of the package. The same compiler gives the same
bytes, and the object says which compiler that was.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dlcp.errors import ExitCode, MachineCannot, Problem
from dlcp.switches.bpf.programs import BOX_OBJECT, OBJECT

NATIVE = Path(__file__).parents[3] / "native"
SOURCE = NATIVE / "switch/switch.bpf.c"
SOURCES = {OBJECT: SOURCE, BOX_OBJECT: NATIVE / "switch/box.bpf.c"}
"""Object → what it is made of."""
CLANG = "clang-14"
STRIP = "llvm-strip-14"
_PACKAGES = "run: apt-get install clang-14 llvm-14 libbpf-dev"


def compile_switch(target: Path, source: Path = SOURCE) -> None:
    """Compile and strip into `target`. v3 instructions for atomics (Linux 5.12); BTF stays, debug sections go.

    Raises MachineCannot without the compiler, Problem with its words when it refuses.
    """
    for program in (CLANG, STRIP):
        if shutil.which(program) is None:
            raise MachineCannot(program, "is not installed", _PACKAGES)
    options = ["-std=gnu11", "-ffreestanding", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"]
    machine = subprocess.run([CLANG, "-print-multiarch"], capture_output=True, text=True, check=False).stdout.strip()
    includes = ["-I.", f"-I/usr/include/{machine or 'x86_64-linux-gnu'}"]  # asm/types.h is kept per architecture
    with tempfile.TemporaryDirectory() as folder:  # all in one: the object then names no folder of its sources
        for file in (NATIVE / "codepoint.h", *source.parent.glob("*.[ch]")):
            shutil.copy(file, folder)
        compile_here = [CLANG, *options, "-fdebug-compilation-dir=.", *includes, "-c", source.name]
        _run([*compile_here, "-o", str(target.absolute())], Path(folder))
    _run([STRIP, "-g", str(target)], Path())


def compiler_of(target: Path) -> str:
    """The compiler that an object names in itself, such as "Debian Clang 14.0.6"."""
    for text in target.read_bytes().split(b"\0"):
        if match := re.search(rb"[A-Za-z]* ?Clang \d+\.\d+\.\d+.*", text):
            return match[0].decode(errors="replace").strip()
    raise Problem(str(target), "does not say which compiler made it")


def compiler_here() -> str | None:
    """Return the version that this machine's compiler would write there; None without one."""
    if shutil.which(CLANG) is None or shutil.which(STRIP) is None:
        return None
    macros = subprocess.run([CLANG, "-dM", "-E", "-"], input="", capture_output=True, text=True, check=True).stdout
    match = re.search(r'#define __VERSION__ "(.*)"', macros)
    return match[1].strip() if match else None


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(" ".join(command), f"failed:\n{done.stderr}", _PACKAGES)


def main() -> int:
    """Rebuild the objects in the package."""
    try:
        for made, source in SOURCES.items():
            compile_switch(made, source)
            print(f"{made} ({made.stat().st_size} B, {compiler_of(made)})")
    except Problem as problem:
        print(problem, file=sys.stderr)
        return int(problem.exit_code)
    return int(ExitCode.FINE)


if __name__ == "__main__":
    sys.exit(main())
