#!/usr/bin/env bash
# Installs what the testbed needs, and nothing twice.  Usage: testbed/setup.sh use|test
#   1. Debian packages by apt where we are root, each with its reason; elsewhere it says what to ask root for.
#   2. a virtual environment in .venv, from pyproject.toml.
#   3. into .venv, as files only, what would come with a service or far too much: sshd, redis-server, Ansible collections,
#      SONiC's YANG models.
# No package that starts or enables a service is ever installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
level=${1:?usage: testbed/setup.sh use|test}

say() { printf '==> %s\n' "$*"; }

find_python() {  # prints one line: its path, version, folder of headers, and whether it can make environments
    local candidate facts
    local ask='import sys; sys.exit(3) if sys.version_info < (3, 11) else None
from importlib.util import find_spec; from sysconfig import get_path
print("%d.%d.%d" % sys.version_info[:3], get_path("include"), "venv" if find_spec("ensurepip") else "bare", sep="\t")'
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
        if facts=$("$candidate" -c "$ask"); then
            printf '%s\t%s\n' "$(command -v "$candidate")" "$facts"
            return
        fi
    done
    echo "setup: no Python 3.11 or newer found; install one (apt-get install python3) or name it: PYTHON=/path/to/python3 make setup" >&2
    exit 3
}

missing_packages() {  # one line each: package, reason
    need() { "${@:3}" >/dev/null 2>&1 || printf '%s\t%s\n' "$1" "$2"; }
    need gcc "compiles the C core" command -v gcc
    need libc6-dev "headers of the C library, for the C core" test -e /usr/include/stdio.h
    case $python in
        /usr/bin/*)
            need "$(basename "$(readlink -f "$python")")-dev" "Python's headers, for the C core" test -e "$include/Python.h"
            need "$(basename "$(readlink -f "$python")")-venv" "virtual environments" test "$environments" = venv ;;
    esac
    need iproute2 "ip and tc build the emulated links and queues" command -v tc
    need mininet "mnexec starts processes inside emulated hosts" command -v mnexec
    need ethtool "turns segmentation offloads off, so that queues see real packets" command -v ethtool
    need iputils-ping "ping, for the emulated network's prompt" command -v ping
    need openssh-client "Ansible and dlcp reach a lab's switches and hosts by ssh" command -v ssh
    need dataset-fashion-mnist "images that real training jobs learn from" \
        test -e "${DLCP_DATA:-/usr/share/datasets/fashion-mnist}/train-images-idx3-ubyte.gz"
    need bible-kjv "prints the text that real training jobs learn from" command -v bible
    need bible-kjv-text "that text" test -e /usr/lib/bible.data
    if [ "$level" = test ]; then
        need clang-14 "rebuilds the switch program and compares it with the shipped one" command -v clang-14
        need libclang-rt-14-dev "libFuzzer, which looks for datagrams that break the C core" \
            bash -c 'compgen -G "/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-*"'
        need llvm-14 "strips the rebuilt switch program" command -v llvm-strip-14
        need libbpf-dev "headers of the switch program" test -e /usr/include/bpf/bpf_helpers.h
        need valgrind "counts the instructions of the C core, which no other load changes" command -v valgrind
        need iperf3 "an independent tool that sees how switch ports buffer" command -v iperf3
        need redis-tools "redis, the database that a SONiC switch keeps its configuration in" test -x /usr/bin/redis-check-rdb
        need "$(yanglint_package)" "yanglint, which checks what is rendered for SONiC against its YANG models" command -v yanglint
    fi
}

yanglint_package() {  # its name has the version of libyang in some releases
    if apt-cache show libyang2-tools 2>/dev/null | grep -q ^Package; then echo libyang2-tools; else echo libyang-tools; fi
}

install_packages() {
    local wanted names
    wanted=$(missing_packages)
    [ -n "$wanted" ] || return 0
    say "Debian packages that are missing, and why:"
    printf '%s\n' "$wanted" | sed 's/^/      /'
    names=$(printf '%s\n' "$wanted" | cut -f1)
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "not root on a Debian or Ubuntu machine: ask root to run: apt-get install --no-install-recommends" $names
        return 0
    fi
    update_lists
    local name
    for name in $names; do  # one by one: a package that this release lacks must not hide the others
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$name" >/dev/null ||
            say "apt-get could not install $name; 'dlcp doctor' will say what that costs"
    done
}

updated=no
update_lists() {
    [ "$updated" = yes ] || [ "$(id -u)" != 0 ] || apt-get update -qq ||
        say "apt-get update failed (no network?); going on with the package lists that are here"
    updated=yes
}

fill_venv() {
    local stamp=.venv/.installed had=none sources
    sources=$({ echo "$python $version"; pwd; cat pyproject.toml setup.py testbed/dlcp/transport/*build*.py $(find testbed/native -name '*.[ch]' | sort); } | sha256sum)
    if [ -e "$stamp" ]; then
        had=$(head -n 1 "$stamp")
        [ "$had" = test ] && level=test  # what `test` installs serves `use` too
        [ "$had" = "$level" ] && [ "$(tail -n 1 "$stamp")" = "$sources" ] && return 0
    fi
    local extras=emulate,lab,train,report
    [ "$level" = test ] && extras=$extras,notebooks,dev
    # One that was interrupted while it was made, or whose Python has gone, is made anew.
    .venv/bin/python -c 'import sys, pip; sys.exit(sys.prefix == sys.base_prefix)' 2>/dev/null || "$python" -m venv --clear .venv
    say "Python packages into .venv ($extras); the first time takes a minute or two"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    printf '%s\n%s\n' "$level" "$sources" > "$stamp"
    say "done; 'source .venv/bin/activate' puts dlcp on the PATH, 'dlcp doctor' says what this machine can do"
    case $(readlink -f .venv/bin/python) in
        /root/*) say "only root can use .venv, for its Python is in /root; for all users: rm -r .venv; PYTHON=/usr/bin/python3 make setup" ;;
    esac
}

fetch_sshd() {  # a lab in namespaces runs its own; the package openssh-server would start one for the whole machine
    local place=.venv/lib/openssh
    { [ -x /usr/sbin/sshd ] || [ -x .venv/bin/sshd ]; } && return
    if ! command -v apt-get >/dev/null; then
        say "no sshd here, and this is no Debian or Ubuntu: 'make lab-demo' needs one at /usr/sbin/sshd"
        return
    fi
    update_lists
    say "sshd for labs in namespaces, into $place (no service)"
    rm -rf "$place"
    # What apt would install with it: libraries, that is. A simulation needs no root and changes nothing.
    apt-get install --simulate --quiet --no-install-recommends openssh-server 2>/dev/null |
        sed -n 's/^Inst \([^ ]*\).*/\1/p' > "$scratch/names" || true
    (cd "$scratch" && xargs --no-run-if-empty apt-get -o APT::Sandbox::User=root download -qq < names) || true
    local package
    for package in "$scratch"/*.deb; do
        [ ! -e "$package" ] || dpkg --extract "$package" "$place"
    done
    if [ -x "$place/usr/sbin/sshd" ]; then
        cat > .venv/bin/sshd <<'WRAPPER'
#!/bin/sh
# sshd as extracted from its Debian package, with the libraries and helpers beside it.
root=$(dirname "$(dirname "$(readlink -f "$0")")")/lib/openssh
for folder in "$root"/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
helpers=$root/usr/lib/openssh
[ -x "$helpers/sshd-auth" ] && set -- -o "SshdAuthPath=$helpers/sshd-auth" "$@"
[ -x "$helpers/sshd-session" ] && set -- -o "SshdSessionPath=$helpers/sshd-session" "$@"
exec "$root/usr/sbin/sshd" "$@"
WRAPPER
        chmod 755 .venv/bin/sshd
    else
        say "apt could not fetch openssh-server; 'dlcp doctor' will say what that costs"
    fi
}

link_redis() {  # redis-tools brings the server's program under another name, and no service
    command -v redis-server >/dev/null || [ ! -x /usr/bin/redis-check-rdb ] || [ -L .venv/bin/redis-server ] ||
        ln -s /usr/bin/redis-check-rdb .venv/bin/redis-server
}

fetch_collections() {  # five of the ninety that the package `ansible` brings: 10 MB of 550
    local place=.venv/collections
    [ -e "$place/.complete" ] && return
    say "Ansible's collections for EOS, NX-OS and Junos into $place"
    if .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" 'ansible>=12,<13'; then
        .venv/bin/python - "$scratch" "$place" <<'UNPACK'
import sys, sysconfig, zipfile
from pathlib import Path
[wheel], place = Path(sys.argv[1]).glob("*.whl"), Path(sys.argv[2]).absolute()
wanted = ("arista/eos", "ansible/netcommon", "ansible/utils", "cisco/nxos", "junipernetworks/junos")
with zipfile.ZipFile(wheel) as archive:
    inside = tuple(f"ansible_collections/{name}/" for name in wanted)
    archive.extractall(place, [name for name in archive.namelist() if name.startswith(inside)])
# Ansible looks for collections on Python's path.
Path(sysconfig.get_path("purelib"), "dlcp-collections.pth").write_text(f"{place}\n")
(place / ".complete").touch()
UNPACK
    else
        say "pip could not fetch the package ansible; the tests that need its collections will say so"
    fi
}

fetch_yang_models() {  # 4 MB of a repository that is not ours to ship from; asked for once
    local place=.venv/share/sonic-yang-models source=${SONIC_YANG_SOURCE:-https://github.com/sonic-net/sonic-buildimage}
    if [ -n "${SONIC_YANG_DIR:-}" ] || [ -d "$place" ] || [ -e "$place.absent" ]; then return; fi
    say "SONiC's YANG models into $place"
    mkdir -p .venv/share
    if GIT_TERMINAL_PROMPT=0 timeout 120 git clone --quiet --depth 1 --filter=blob:none --sparse "$source" "$scratch/sonic" &&
        timeout 120 git -C "$scratch/sonic" sparse-checkout set src/sonic-yang-models &&
        [ -d "$scratch/sonic/src/sonic-yang-models/yang-models" ]; then
        mv "$scratch/sonic/src/sonic-yang-models" "$place"
    else
        touch "$place.absent"
        say "they could not be fetched; the tests that need them say so. Remove $place.absent to try again"
    fi
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

found=$(find_python)
IFS=$'\t' read -r python version include environments <<< "$found"
install_packages
fill_venv
fetch_sshd
if [ "$level" = test ]; then
    link_redis
    fetch_collections
    fetch_yang_models
fi
