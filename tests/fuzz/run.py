"""Fuzz the C core with libFuzzer under AddressSanitizer and UBSan: `make fuzz`, or run.py --help.

A target is tests/fuzz/<name>_target.c; what it has learnt is kept, reduced, in tests/fuzz/corpus/<name>.zip. An input
that breaks a promise is told and left in build/fuzz.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "testbed" / "native"
INCLUDES = [f"-I{folder}" for folder in sorted({header.parent for header in NATIVE.rglob("*.h")})]
CORPUS = HERE / "corpus"
FINDINGS = HERE.parents[1] / "build" / "fuzz"
WITH_SOCKETS = {"engine.c", "datagrams.c", "sockets.c", "traffic_source.c", "traffic_sink.c", "blast.c"}
"""Files of the core that are not the state machine."""
CLANG = "clang-14"
FLAGS = (
    "-std=gnu11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=all",
)
LONGEST_INPUT = 1024
SLOWEST_S = 20
"""One input that takes longer counts as a hang."""


def targets() -> list[str]:
    """Names of all targets."""
    return sorted(path.name.removesuffix("_target.c") for path in HERE.glob("*_target.c"))


def missing() -> str:
    """Why fuzzing cannot work on this machine and what mends it; empty if it can."""
    if shutil.which(CLANG) is None:
        return f"{CLANG} is not installed: apt install {CLANG} libclang-rt-14-dev"
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n")
        command = [CLANG, "-fsanitize=fuzzer,address", probe, "-o", Path(folder, "probe")]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return "libFuzzer's runtime is not installed: apt install libclang-rt-14-dev"
    return ""


def build(target: str, folder: Path) -> Path:
    """Compile a target; returns the program. subprocess.CalledProcessError when it does not compile."""
    program = folder / target
    core = [path for path in NATIVE.rglob("*.c") if path.name not in WITH_SOCKETS and ".bpf." not in path.name]
    command = [CLANG, *FLAGS, *INCLUDES, HERE / f"{target}_target.c", *core, "-lm", "-o", program]
    subprocess.run(command, check=True)
    return program


def fuzz(program: Path, learnt: list[Path], seconds: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Run a target: new inputs go into the first folder of `learnt`."""
    for folder in (FINDINGS, *learnt):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        program,
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        "-len_control=0",
        f"-timeout={SLOWEST_S}",
        f"-seed={seed}",
        f"-artifact_prefix={FINDINGS}/{program.name}-",
        "-print_final_stats=1",
        *learnt,
    ]
    return subprocess.run(
        [str(part) for part in command], stderr=subprocess.PIPE, text=True, check=False, timeout=seconds + 300
    )


def unpack(target: str, folder: Path) -> Path:
    """What earlier runs learnt of a target, as files in `folder`, which is made; returns it."""
    folder.mkdir()
    if (kept := CORPUS / f"{target}.zip").exists():
        with zipfile.ZipFile(kept) as archive:
            archive.extractall(folder)
    return folder


def keep(program: Path, known: Path, found: Path) -> None:
    """Reduce what was known and what was found to the inputs that show something, and pack them."""
    reduced = found.with_name("reduced")
    reduced.mkdir()
    command = [str(part) for part in (program, "-set_cover_merge=1", reduced, known, found)]
    subprocess.run(command, check=True, capture_output=True)
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{program.name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(reduced.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())


def main() -> int:
    """Fuzz every target for a while and keep what was learnt; exit 1 on a finding, 3 where this machine cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="how long, each target")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer; 0 = another one each time")
    parser.add_argument("target", nargs="*", default=targets(), help=f"one of {', '.join(targets())}; all if not given")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"fuzz: {reason}", file=sys.stderr)
        return 3
    status = 0
    for target in arguments.target:
        with tempfile.TemporaryDirectory() as folder:
            program = build(target, Path(folder))
            known, found = unpack(target, Path(folder, "known")), Path(folder, "found")
            print(f"fuzz: {target} for {arguments.seconds} s", flush=True)
            done = fuzz(program, [found, known], arguments.seconds, arguments.seed)
            if done.returncode:
                print(
                    done.stderr, f"fuzz: {target}: a finding; its input lies in {FINDINGS}", sep="\n", file=sys.stderr
                )
                status = 1
                continue
            print("\n".join(line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed")))
            keep(program, known, found)
    return status


if __name__ == "__main__":
    sys.exit(main())
