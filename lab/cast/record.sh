#!/bin/sh
# Records demo.cast and demo.svg: real commands on hosts that are network namespaces of this machine.
#
#   sh lab/cast/record.sh           as root, after cargo build --release -p wireup -p wireup-testbed and cargo xtask setup
#
# asciinema records, termtosvg draws; both come from PyPI into target/cast. RELEASE names another folder of the programs.
set -e
cd "$(dirname "$0")/../.."
work=$PWD/target/cast
release=${RELEASE:-$PWD/target/release}
if [ "$1" = play ]; then
    cd "$work"
    PATH=$release:$PATH
    show() {
        printf '\033[2J\033[H\033[1;32m$\033[0m %s\n' "$1"
        sleep 1
        eval "$1" || true
        sleep "$2"
    }
    show "wireup doctor --hosts 'n[0-3]'" 6
    show "wireup run --hosts 'n[0-2]' --ppn 2 ./app" 4
    show "wireup run --hosts 'n[0-2]' -n 3 ./app crash" 5
    show "wireup run --hosts 'n[0-2]' -n 3 --timeout 4 --stall-report 2 ./app hang" 5
    left="ps --no-headers -C wireup,wireup-keeper,app || echo \$(hostname): nothing is left"
    show "for host in n0 n1 n2; do ssh \$host '$left'; done" 5
    exit
fi
python3 -m venv "$work"
"$work/bin/pip" install --quiet asciinema==2.4.0 termtosvg==1.1.0 setuptools==75.8.0
target/peers/mpich/bin/mpicc lab/cast/app.c -o "$work/app"
"$release/wireup-testbed" run -n 4 --sshd-option n3:PubkeyAuthentication=no --no-trap --share "$work" -- \
    "$work/bin/asciinema" rec --quiet --overwrite --cols 116 --rows 14 --env TERM \
    -c "sh $PWD/lab/cast/record.sh play" "$work/demo.cast"
sed "s/\($(uname -r | cut -d- -f1)\)-[^,]*/\1/g" "$work/demo.cast" >lab/cast/demo.cast
"$work/bin/termtosvg" render lab/cast/demo.cast lab/cast/demo.svg --loop-delay 4000
