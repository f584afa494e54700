#!/bin/sh
# Times starts from a slow file server, with staging, with prefetching and without:
#
#   slow-server.sh NODES RANKS [FOLDER COMMAND...]
#
# FOLDER is served by `wireup-testbed slowfs` (0.2 ms for each operation, one at a time, 500 MB/s) at another path,
# which stands for {} in COMMAND. Without them: a C program with 20 libraries of 1 MB in 10 folders of LD_LIBRARY_PATH.
# The first run of each kind finds empty caches and nothing staged; again: right after; aged: when what the kernel knows
# of names has expired, after KEEP seconds (1); flushed: with empty caches, and with what was staged.
# HOSTS=1: nodes are hosts of a testbed, each with a cache and a store of its own; otherwise virtual nodes share both.
# FLAGS: of all runs (--pmi none), ALSO: of those with --stage. ROUNDS: how often (1). JSON: a file for lines as of wireup
# bench, in which PROGRAM is the program's name. It needs root (FUSE, mounts, empty caches), wireup and wireup-testbed
# on PATH, and cc for the C program.
set -eu

now_ms() { echo $(($(date +%s%N) / 1000000)); }
empty_caches() { { echo 3 > /proc/sys/vm/drop_caches; } 2> /dev/null || echo "(the kernel's caches could not be emptied)"; }

# Appends a line to the file of lines.
line() { [ -z "$JSON" ] || printf '{"record":%s}\n' "$1" >> "$JSON"; }

# A value of a run: QUANTITY UNIT VALUE.
sample() {
    case="{\"program\":\"$PROGRAM\",\"nodes\":$NODES,\"ranks\":$RANKS,\"place\":\"$PLACE\"}"
    line "\"sample\",\"benchmark\":\"slow-server\",\"contestant\":\"$what\",\"case\":$case,\
\"quantity\":\"$1\",\"unit\":\"$2\",\"round\":$ROUND,\"value\":$3"
}

# Prints the time of a command, and the operations at the server meanwhile.
timed() {
    what=$1
    shift
    before=$(wc -l < "$LOG")
    from=$(now_ms)
    "$@" > "$WORK/out" 2>&1 || { echo "$what: failed"; tail -n 5 "$WORK/out"; exit 1; }
    took=$(($(now_ms) - from))
    # The kernel tells the server of closed files later, which can keep the server busy for seconds.
    while now=$(wc -l < "$LOG") && sleep 0.3 && [ "$(wc -l < "$LOG")" -gt "$now" ]; do :; done
    operations=$((now - before))
    printf '%-28s %8s ms %10s operations\n' "$what" "$took" "$operations"
    sample time s "$((took / 1000)).$(printf %03d $((took % 1000)))"
    sample "operations at the server" count "$operations"
}

# The words of the command with FOLDER at $1.
at() { printf '%s\n' "$COMMAND" | sed "s|{}|$1|g"; }

inside() {
    nodes="--virtual-nodes $NODES" session=slow-$$ store=/dev/shm/slow-server-$$
    if [ "$PLACE" = hosts ]; then
        nodes="--hosts $WIREUP_TESTBED_HOSTS"
        for node in $(seq 0 $((NODES - 1))); do ssh "n$node" mount --bind "$WORK/view$node" "$MOUNT"; done
    fi
    # shellcheck disable=SC2086 # words
    wireup up $nodes --session $session 2> /dev/null
    trap 'wireup down --session $session 2> /dev/null; rm -rf $store' EXIT
    run="wireup run --session $session -n $RANKS --ppn $((RANKS / NODES)) ${FLAGS-}"
    also=$(printf '%s' "${ALSO-}" | sed "s|{}|$MOUNT|g")
    export XDG_CACHE_HOME="$WORK/cache"
    for ROUND in $(seq 0 $((ROUNDS - 1))); do
        for how in "not staged" prefetched staged; do
            case $how in
            "not staged") flags= ;;
            prefetched) flags="--stage=prefetch $also" ;;
            staged)
                flags="--stage=$store $also"
                [ "$ROUND" = 0 ] || wireup stage drop --session $session --stage=$store > /dev/null
                ;;
            esac
            rm -rf "$XDG_CACHE_HOME"
            for when in "" ", again" ", aged" ", flushed"; do
                case $when in
                "") sleep "$KEEP.2" && empty_caches ;;
                ", aged") sleep "$KEEP.2" ;;
                ", flushed") empty_caches ;;
                esac
                timed "$how$when" sh -c "$run $flags $(at "$MOUNT")"
            done
        done
        timed "from a local disk" sh -c "$run $(at "$FOLDER")"
        timed "from a local disk, again" sh -c "$run $(at "$FOLDER")"
    done
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
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
NODES=$1 RANKS=$2 KEEP=${KEEP-1} ROUNDS=${ROUNDS-1} JSON=${JSON-} PLACE="virtual nodes"
shift 2
# Hosts of a testbed see this folder, but not those in memory.
WORK=$(mktemp -d /var/tmp/slow-server-XXXXXX)
trap 'rm -rf "$WORK"' EXIT
MOUNT=$WORK/mount LOG=$WORK/log views= testbed=
mkdir "$MOUNT"
: > "$LOG"
if [ $# -eq 0 ]; then
    PROGRAM="C program, 20 libraries in 10 folders"
    c_program
else
    PROGRAM=${PROGRAM-$2} FOLDER=$1
    shift
    COMMAND=$*
fi
if [ -n "${HOSTS-}" ]; then
    PLACE=hosts testbed="wireup-testbed run -n $NODES --"
    for node in $(seq 0 $((NODES - 1))); do mkdir "$WORK/view$node" && views="$views --view $WORK/view$node"; done
fi
machine="{\"cpus\":$(nproc),\"kernel\":\"$(uname -r)\"}"
line "\"run\",\"schema\":1,\"benchmark\":\"slow-server\",\"version\":null,\"commit\":null,\"words\":[],\
\"date\":\"$(date -u +%FT%TZ)\",\"machine\":$machine,\"command\":\"sh docs/examples/slow-server.sh $NODES $RANKS\",\
\"note\":\"$PLACE; the kernel keeps names for $KEEP s\""
export NODES RANKS FOLDER COMMAND MOUNT LOG WORK FLAGS ALSO="${ALSO-}" KEEP ROUNDS JSON PLACE PROGRAM
# shellcheck disable=SC2086 # words
wireup-testbed slowfs --source "$FOLDER" --mount "$MOUNT" $views --timeout-s "$KEEP" --log "$LOG" -- \
    $testbed sh "$0" --inside
