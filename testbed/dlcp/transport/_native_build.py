"""Builds dlcp.transport._native (cffi, API mode, stable ABI) from the C core in testbed/native.

Nothing of the C headers is written a second time: what lies between `cffi: begin` and `cffi: end` is declared as it is,
and of `static inline` functions the first line. setup.py calls this from the repository's root.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).resolve().parents[2] / "native"
ROOT = NATIVE.parents[1]
HEADERS = (
    "wire.h",
    "protocol/protocol.h",
    "protocol/elements.h",
    "engine/clock.h",
    "engine/engine.h",
    "traffic/traffic.h",
    "traffic/blast.h",
    "simulate/events.h",
    "simulate/fabric.h",
    "simulate/planned.h",
)
"""Headers with cffi marks; in the order in which they need each other."""
INLINE_HEADERS = ("codepoint.h", "switch/aqm.h")
"""Headers shared with the eBPF switch: plain constants, structs and inline functions, all of them declared."""
GENERATED_ONLY = '#pragma GCC diagnostic ignored "-Wunused-parameter"'
"""Stands in the file that cffi writes, whose functions for calls without arguments have unused ones; not in ours."""
NO_WIDE_LOADS = "-fno-tree-slp-vectorize"
"""A load that spans two fields just written waits until all stores before them, a packet's payload, are in memory: 0.04
of 0.3 us a packet on loopback."""
BPF_SOURCE = re.compile(r".*\.bpf\.c")


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def _inline_functions(text: str) -> str:
    found = re.findall(r"^static inline ([^{;]+?)\s*\{", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(f"{prototype};" for prototype in found)


def _marked(text: str) -> str:
    """What a header with marks offers to Python."""
    declared = re.findall(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", text, flags=re.DOTALL)
    inline = re.findall(r"/\* cffi: functions \*/(.*?)/\* cffi: functions end \*/", text, flags=re.DOTALL)
    return _without_comments("\n".join(declared)) + _inline_functions(_without_comments("\n".join(inline)))


def _everything(text: str) -> str:
    """All of a header without marks: numeric constants, enums, structs, inline functions."""
    text = _without_comments(text)
    constants = re.findall(r"^#define (DLCP_\w+) +\S+", text, flags=re.MULTILINE)
    structs = re.findall(r"^(?:struct|enum) \w+ \{.*?^\};", text, flags=re.DOTALL | re.MULTILINE)
    numbers = dict(re.findall(r"^#define (DLCP_\w+) +(\d+)u?\s*$", text, flags=re.MULTILINE))
    defines = "\n".join(f"#define {name} {numbers.get(name, '...')}" for name in constants)
    return "\n".join((defines, *structs, _inline_functions(text)))


def declarations() -> str:
    """The cffi declarations of the whole core."""
    parts = [_everything((NATIVE / name).read_text()) for name in INLINE_HEADERS]
    parts += [_marked((NATIVE / name).read_text()) for name in HEADERS]
    return "\n".join(parts)


def sources() -> list[str]:
    """Every C file of the core but the eBPF program, relative to the repository's root as setuptools wants it."""
    return sorted(str(path.relative_to(ROOT)) for path in NATIVE.rglob("*.c") if not BPF_SOURCE.match(path.name))


def headers() -> list[str]:
    """What a rebuild depends on beside the sources."""
    return sorted(str(path.relative_to(ROOT)) for path in NATIVE.rglob("*.h"))


ffi = FFI()
ffi.cdef(declarations())
ffi.set_source(
    "dlcp.transport._native",
    "\n".join((GENERATED_ONLY, *(f'#include "{name}"' for name in (*INLINE_HEADERS, *HEADERS)))),
    sources=sources(),
    depends=headers(),
    include_dirs=sorted({str(path.parent.relative_to(ROOT)) for path in NATIVE.rglob("*.h")}),
    extra_compile_args=["-std=gnu11", "-O3", NO_WIDE_LOADS, "-Wall", "-Wextra", "-Werror"],
    extra_link_args=["-pthread"],
    libraries=["m"],
    py_limited_api=True,
)
