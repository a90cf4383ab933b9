#!/usr/bin/env bash
# Installs what the testbed needs, and nothing twice.  Usage: testbed/setup.sh emulate|test
#   1. Debian packages by apt where we are root, each with its reason; elsewhere it says what to ask root for.
#   2. a virtual environment in .venv, from pyproject.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
level=${1:?usage: testbed/setup.sh emulate|test}

say() { printf '==> %s\n' "$*"; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$candidate"
            return
        fi
    done
    echo "setup: no Python 3.11 or newer found; install one (apt-get install python3) or name it: PYTHON=/path/to/python3 make setup" >&2
    exit 3
}

missing_packages() {  # one line each: package, reason
    local python=$1
    need() { "${@:3}" >/dev/null 2>&1 || printf '%s\t%s\n' "$1" "$2"; }
    local include
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    need gcc "compiles the C core" command -v gcc
    need libc6-dev "headers of the C library, for the C core" test -e /usr/include/stdio.h
    case $python in
        /usr/bin/*)
            need "$(basename "$(readlink -f "$python")")-dev" "Python's headers, for the C core" test -e "$include/Python.h"
            need "$(basename "$(readlink -f "$python")")-venv" "virtual environments" "$python" -c 'import ensurepip' ;;
    esac
    need iproute2 "ip and tc build the emulated links and queues" command -v tc
    need mininet "mnexec starts processes inside emulated hosts" command -v mnexec
    need ethtool "turns segmentation offloads off, so that queues see real packets" command -v ethtool
    need iputils-ping "ping, for the emulated network's prompt" command -v ping
    need dataset-fashion-mnist "images that the real training job learns from" \
        test -e "${DLCP_DATA:-/usr/share/datasets/fashion-mnist}/train-images-idx3-ubyte.gz"
    if [ "$level" = test ]; then
        need clang-14 "rebuilds the switch program and compares it with the shipped one" command -v clang-14
        need libclang-rt-14-dev "libFuzzer, which looks for datagrams that break the C core" \
            bash -c 'compgen -G "/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-*"'
        need llvm-14 "strips the rebuilt switch program" command -v llvm-strip-14
        need libbpf-dev "headers of the switch program" test -e /usr/include/bpf/bpf_helpers.h
    fi
}

install_packages() {
    local wanted names
    wanted=$(missing_packages "$1")
    [ -n "$wanted" ] || return 0
    say "Debian packages that are missing, and why:"
    printf '%s\n' "$wanted" | sed 's/^/      /'
    names=$(printf '%s\n' "$wanted" | cut -f1)
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "not root on a Debian or Ubuntu machine: ask root to run: apt-get install --no-install-recommends" $names
        return 0
    fi
    apt-get update -qq || say "apt-get update failed (no network?); going on with the package lists that are here"
    local name
    for name in $names; do  # one by one: a package that this release lacks must not hide the others
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$name" >/dev/null ||
            say "apt-get could not install $name; 'dlcp doctor' will say what that costs"
    done
}

fill_venv() {
    local python=$1 stamp=.venv/.installed had=none sources
    sources=$({ "$python" -V; pwd; cat pyproject.toml setup.py testbed/dlcp/transport/*build*.py testbed/native/*.[ch]; } | sha256sum)
    if [ -e "$stamp" ]; then
        had=$(head -n 1 "$stamp")
        [ "$had" = test ] && level=test  # what `test` installs serves `emulate` too
        [ "$had" = "$level" ] && [ "$(tail -n 1 "$stamp")" = "$sources" ] && return 0
    fi
    local extras=emulate,train,report
    [ "$level" = test ] && extras=$extras,notebooks,dev
    # One that was interrupted while it was made, or whose Python has gone, is made anew.
    .venv/bin/python -c 'import sys, pip; sys.exit(sys.prefix == sys.base_prefix)' 2>/dev/null || "$python" -m venv --clear .venv
    say "Python packages into .venv ($extras); the first time takes a minute or two"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    printf '%s\n%s\n' "$level" "$sources" > "$stamp"
    say "done; 'source .venv/bin/activate' puts dlcp on the PATH, 'dlcp doctor' says what this machine can do"
}

python=$(find_python)
install_packages "$python"
fill_venv "$python"
