# The first process of the namespaces: SCRIPT FOLDER TOOLCHAIN [LENT FOLDER...]. FOLDER contains root, here and
# carried; SCRIPT is run by sh in what was `here`. TOOLCHAIN may be empty.
set -eu
script=$1 folder=$2 toolchain=$3
shift 3
cd "$folder/root"

# The new root is a mount point: in a mere chroot user namespaces cannot be created, which some tests do.
mount --bind . .
cd "$folder/root"
mount -t proc proc proc
# Including the cgroups.
mount --rbind /sys sys
mount -t tmpfs -o mode=755 run run
mkdir -p run/lock

mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do
    : >"dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr

lend() {
    mkdir -p "./$2"
    mount --rbind "$1" "./$2"
    mount -o remount,bind,ro "./$2"
}
[ -z "$toolchain" ] || lend "$toolchain" opt/rust
for path; do
    # If the new Debian has a folder of this name, it keeps its own.
    [ -e "./$path" ] || lend "$path" "$path"
done

# Only before the first command.
if [ -e "$folder/here" ]; then
    cp -R --no-preserve=ownership "$folder/carried/." .
    chown -R 0:0 "$folder/here"
    rm -rf root/wireup
    mv "$folder/here" root/wireup
    chroot . update-ca-certificates >/dev/null 2>&1
fi

# Debian's installer writes this line. The carried file has taken the place of the new Debian's own.
grep -q ' fresh$' etc/hosts || echo "127.0.1.1 fresh" >>etc/hosts
hostname fresh
pivot_root . mnt
cd /
umount --lazy /mnt
env -i sh -c '. /etc/carried; cd /root/wireup; eval "$1"' sh "$script"
