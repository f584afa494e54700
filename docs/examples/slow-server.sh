#!/bin/sh
# Times starts from a slow file server, with staging, with prefetching and without:
#
#   slow-server.sh NODES RANKS [FOLDER COMMAND...]
#
# FOLDER is served by `wireup-testbed slowfs` (0.2 ms for each operation, one at a time, 500 MB/s) at another path,
# which stands for {} in COMMAND. Without them: a C program with 20 libraries of 1 MB in 10 folders of LD_LIBRARY_PATH.
# FLAGS: of all runs (--pmi none), ALSO: of those with --stage. It needs root (FUSE, mounts, empty caches), wireup and
# wireup-testbed on PATH, and cc for the C program.
set -eu

now_ms() { echo $(($(date +%s%N) / 1000000)); }
empty_caches() { { echo 3 > /proc/sys/vm/drop_caches; } 2> /dev/null || echo "(the kernel's caches could not be emptied)"; }

# Prints the time of a command, and the operations at the server meanwhile.
timed() {
    what=$1
    shift
    # The kernel forgets names after a second.
    sleep 1.2
    before=$(wc -l < "$LOG")
    from=$(now_ms)
    "$@" > "$WORK/out" 2>&1 || { echo "$what: failed"; tail -n 5 "$WORK/out"; exit 1; }
    took=$(($(now_ms) - from))
    sleep 1.2
    printf '%-28s %8s ms %10s operations\n' "$what" "$took" $(($(wc -l < "$LOG") - before))
}

# The words of the command with FOLDER at $1.
at() { printf '%s\n' "$COMMAND" | sed "s|{}|$1|g"; }

inside() {
    wireup up --virtual-nodes "$NODES" --session "slow-$$" 2> /dev/null
    trap 'wireup down --session "slow-$$" 2> /dev/null' EXIT
    run="wireup run --session slow-$$ -n $RANKS ${FLAGS-}"
    empty_caches
    timed "not staged" sh -c "$run $(at "$MOUNT")"
    empty_caches
    also=$(printf '%s' "${ALSO-}" | sed "s|{}|$MOUNT|g")
    timed "prefetched" sh -c "$run --stage=prefetch $also $(at "$MOUNT")"
    empty_caches
    timed "staged" sh -c "$run --stage=$WORK/store $also $(at "$MOUNT")"
    empty_caches
    timed "staged, once more" sh -c "$run --stage=$WORK/store $also $(at "$MOUNT")"
    timed "from a local disk" sh -c "$run $(at "$FOLDER")"
    timed "from a local disk, again" sh -c "$run $(at "$FOLDER")"
}

# 20 libraries with 1 MB that is not zero, in 10 folders.
c_program() {
    FOLDER=$WORK/program
    names= folders=
    for number in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
        folder=$FOLDER/lib$((number % 10))
        mkdir -p "$folder" "$FOLDER/bin"
        echo "int f$number(void) { return $number; }" | cc -shared -fPIC -x c -o "$folder/libx$number.so" -
        head -c 1000000 /dev/urandom >> "$folder/libx$number.so"
        names="$names -L$folder -lx$number"
        [ "$number" -gt 9 ] || folders="$folders{}/lib$number:"
    done
    {
        for number in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do echo "int f$number(void);"; done
        echo 'int main(void) { return f0() + f1() + f2() + f3() + f4() + f5() + f6() + f7() + f8() + f9() + f10() + f11() + f12()'
        echo ' + f13() + f14() + f15() + f16() + f17() + f18() + f19() != 190; }'
    } > "$FOLDER/program.c"
    # shellcheck disable=SC2086 # words
    cc -o "$FOLDER/bin/program" "$FOLDER/program.c" -Wl,--no-as-needed $names
    COMMAND="-x LD_LIBRARY_PATH=$folders {}/bin/program"
    FLAGS="--pmi none ${FLAGS-}"
}

if [ "${1-}" = --inside ]; then
    inside
    exit
fi
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
NODES=$1 RANKS=$2
shift 2
WORK=$(mktemp -d /dev/shm/slow-server-XXXXXX)
trap 'rm -rf "$WORK"' EXIT
MOUNT=$WORK/mount LOG=$WORK/log
mkdir "$MOUNT"
: > "$LOG"
if [ $# -eq 0 ]; then
    c_program
else
    FOLDER=$1
    shift
    COMMAND=$*
fi
export NODES RANKS FOLDER COMMAND MOUNT LOG WORK FLAGS ALSO="${ALSO-}"
wireup-testbed slowfs --source "$FOLDER" --mount "$MOUNT" --log "$LOG" -- sh "$0" --inside
