#!/bin/sh
# Boots the systemd of this machine in namespaces of its own: boot.sh CGROUP ROOT BINARY. Its root is a file system in
# memory with /usr of this machine, which stays as it is: what is written there goes to memory as well, where the kernel has
# overlays.
set -e
echo $$ > "$1/cgroup.procs"
exec unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child /bin/sh -e -c '
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir -p usr etc/systemd/system etc/trunkline var/lib var/log var/cache run tmp proc sys dev root opt mnt
mkdir -p over/written over/work
if ! mount -t overlay -o lowerdir=/usr,upperdir=over/written,workdir=over/work overlay usr 2> /dev/null; then
    mount --bind /usr usr
    mount -o remount,bind,ro usr
fi
for folder in bin sbin lib lib64; do [ ! -e "/$folder" ] || ln -s "usr/$folder" "$folder"; done
touch opt/trunkline
mount --bind "$2" opt/trunkline
for file in ld.so.cache nsswitch.conf; do [ ! -e "/etc/$file" ] || cp "/etc/$file" etc/; done
printf "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n" > etc/passwd
printf "root:x:0:\nnogroup:x:65534:\n" > etc/group
printf "0123456789abcdef0123456789abcdef\n" > etc/machine-id
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
printf "[Unit]\nDescription=Nothing yet\n" > etc/systemd/system/booted.target
pivot_root . mnt
umount -l mnt
# Credentials are mounted elsewhere and come in by propagation.
mount --make-rshared /
exec env -i container=other PATH=/usr/bin:/usr/sbin /usr/lib/systemd/systemd --system --unit=booted.target --show-status=no
' sh "$2" "$3"
