#!/bin/sh
# Bring a machine to where the project can be built, and touch nothing that is already there.
#
#   setup_machine.sh packages     install the Debian packages whose program, library or header is missing
#   setup_machine.sh test         install the servers and daemons that tests start for themselves
#   setup_machine.sh python       print the Python to build with (3.11 or newer)
#   setup_machine.sh venv DIR     make a virtual environment with pip in DIR
#
# What is asked for is the thing itself (a program, a header), not the package: a machine that has it otherwise is fine.
set -eu
PATH=$PATH:/usr/sbin:/sbin
export PATH

die() {
    printf 'setup: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

has_library() { ldconfig -p 2>/dev/null | grep -q "$1"; }

# A libc.a is looked for where the compiler would: the box's init is linked statically.
has_static_libc() { [ -e "$(cc -print-file-name=libc.a 2>/dev/null)" ]; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_make_venv() { is_new_enough "$1" && "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# One that can make a venv is preferred: a pyenv Python can, Debian's can only with python3-venv.
find_python() {
    for wanted in can_make_venv is_new_enough; do
        for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
            if "$wanted" "$candidate"; then
                command -v "$candidate"
                return 0
            fi
        done
    done
    return 1
}

missing_packages() {
    command -v bwrap >/dev/null || echo bubblewrap
    has_library 'libbpf\.so\.1' || echo libbpf1
    [ -e /usr/include/bpf/bpf_helpers.h ] || echo libbpf-dev
    command -v clang >/dev/null || echo clang
    command -v llvm-strip >/dev/null || echo llvm
    command -v bpftool >/dev/null || echo bpftool
    has_library 'libseccomp\.so\.2' || echo libseccomp2
    command -v cc >/dev/null || echo gcc
    has_static_libc || echo libc6-dev
    command -v make >/dev/null || echo make
    command -v git >/dev/null || echo git
    if python=$(find_python); then
        can_make_venv "$python" || echo python3-venv
    else
        echo python3 python3-venv
    fi
}

# Servers that tests start on private sockets and stop again. None of them is needed to run trials.
missing_servers() {
    command -v redis-server >/dev/null || echo redis-server
    command -v beanstalkd >/dev/null || echo beanstalkd
    command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || echo postgresql
    command -v rabbitmq-server >/dev/null || echo rabbitmq-server
    command -v dockerd >/dev/null || echo docker.io
    command -v busybox >/dev/null || echo busybox-static
    command -v atd >/dev/null || echo at
    command -v cron >/dev/null || echo cron
}

# $1 is the function that lists what is missing.
install_packages() {
    missing=$($1 | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "missing here: $missing" "this is no Debian: install them in its own way, then make again"
    [ "$(id -u)" -eq 0 ] || die "missing here: $missing" "as root: apt-get install $missing"
    printf 'setup: installing %s\n' "$missing" >&2
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of package names
    if ! { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt-get could not install: $missing" "see its words above"
    fi
    rm -f "$log"
    hash -r
    missing=$($1 | tr '\n' ' ')
    [ -z "$missing" ] || die "still missing after apt-get: $missing" "is there a Python 3.11 or newer? PYTHON=/path/to/python3 names one"
}

print_python() { find_python || die "no Python 3.11 or newer found" "PYTHON=/path/to/python3 names one"; }

make_venv() {
    # One left half made, or whose Python has gone, is made anew; a good one is kept.
    if [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1; then return 0; fi
    rm -rf "$1"
    "$(print_python)" -m venv "$1"
}

case "${1:-}" in
    packages) install_packages missing_packages ;;
    test) install_packages missing_servers ;;
    python) print_python ;;
    venv) make_venv "${2:?setup_machine.sh venv DIR}" ;;
    *) die "expected packages, test, python or venv, got '${1:-}'" ;;
esac
