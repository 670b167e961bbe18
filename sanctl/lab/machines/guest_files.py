# SPDX-License-Identifier: GPL-2.0-or-later
"""Files and packages that a node gets: init, fstab, sshd, hosts file, its identity. Pure.

`image_files` go into the image that all nodes share. `identity_files` differ from node to node and
are on a small config disk (a plain tar file); a node's first process applies them before systemd
starts, so that no process ever runs with a shared identity.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from typing import NamedTuple

from sanctl.lab.machines.spec import (
    EXT4,
    PREFIX_LENGTH,
    LabSpec,
    Network,
    NodeSpec,
    Role,
)

INIT = "/usr/lib/sanctl-lab/init"
SHARED_DISK = 13
SHARED_DEVICE = "/dev/ubdn"
CONFIG_DISK = 14
MODULES_DISK = 15

_COMMON_PACKAGES = (
    "systemd-sysv", "udev", "dbus", "openssh-server", "iproute2", "iputils-ping", "kmod", "procps",
    "less", "logrotate", "perl-base", "python3", "python3-apt", "python3-click", "python3-rich",
    "python3-systemd", "python3-rtslib-fb", "targetcli-fb",
    "drbd-utils", "dmsetup", "lvm2", "e2fsprogs", "xfsprogs",
    "corosync", "corosync-qdevice", "corosync-qnetd",
    "pacemaker", "pacemaker-cli-utils", "resource-agents", "libxml2-utils", "ipmitool", "sbd",
    "iputils-arping", "borgbackup",
    "open-iscsi", "multipath-tools", "libiscsi-bin", "sg3-utils", "lsscsi", "fio",
)  # fmt: skip

# Enabled by their packages, not needed before the rollout enables them: each costs boot time, and
# a node must not join a cluster or look for targets because of an image.
_NOT_ENABLED = (
    "corosync.service", "corosync-qdevice.service", "corosync-qnetd.service",
    "pacemaker.service", "rtslib-fb-targetctl.service", "logd.service",
    "e2scrub_reap.service", "multipathd.service", "open-iscsi.service", "iscsid.socket",
    "lvm2-monitor.service", "lvm2-lvmpolld.socket", "blk-availability.service",
    "systemd-pstore.service", "drbd.service", "getty@tty1.service", "sbd.service",
    "sbd_remote.service",
)  # fmt: skip

_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "fstrim.timer", "xfs_scrub_all.timer", "man-db.timer", "ldconfig.service",
    "systemd-hwdb-update.service", "systemd-journal-catalog-update.service",
    "systemd-update-done.service", "systemd-firstboot.service", "sshd-keygen.service",
    "systemd-networkd-wait-online.service", "console-getty.service", "serial-getty@.service",
    "getty@.service", "systemd-random-seed.service", "dev-hugepages.mount", "dev-mqueue.mount",
    "systemd-pcrlock-make-policy.service", "systemd-tpm2-setup.service",
)  # fmt: skip

# The first process of a node. Runs before systemd and becomes it.
_INIT_SCRIPT = r"""#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
mount -t ext4 -o ro /dev/ubdp /usr/lib/modules
mkdir -m 700 /run/sanctl-lab
tar -xf /dev/ubdo -C /run/sanctl-lab
# Every node's kernel starts with the same "random" numbers. RNDADDENTROPY (0x40085203) and
# RNDRESEEDCRNG (0x5207) make them its own before anything asks for any.
perl -e '
    local $/; open my $seed, "<", "/run/sanctl-lab/seed" or die $!; my $bytes = <$seed>;
    open my $random, ">", "/dev/random" or die $!;
    ioctl($random, 0x40085203, pack("ii", 8 * length $bytes, length $bytes) . $bytes) or die $!;
    ioctl($random, 0x5207, 0) or die $!;
'
rm -f /run/sanctl-lab/seed
ip -batch /run/sanctl-lab/links
if [ ! -e /var/lib/sanctl-lab.identity ]; then
    cp -a /run/sanctl-lab/identity/. /
    : > /var/lib/sanctl-lab.identity
    sync
fi
exec /lib/systemd/systemd
"""

_SSHD_CONFIG = """\
# Lab: one known host key per node, no PAM session to open for each of many commands.
HostKey /etc/ssh/ssh_host_ed25519_key
UseDNS no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxSessions 100
MaxStartups 100
"""

_JOURNALD_CONFIG = """\
[Journal]
# Kept over a power cut: what a node said before it is what a fault test wants to read.
Storage=persistent
SyncIntervalSec=5s
SystemMaxUse=64M
"""


# Between a data disk and its filesystem lies a device-mapper device that does nothing, until
# `sanctl lab disk` loads another table into it. fstab names the service: no mount comes before it.
_DISKS_SERVICE = """\
[Unit]
Description=Data disks behind device-mapper, so that they can be made to fail
DefaultDependencies=no
After=systemd-udevd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/sanctl-lab/disks
"""

_DISKS_SCRIPT = """#!/bin/sh
set -eu
modprobe dm-mod
for number in {numbers}; do
    disk=/dev/ubd$(echo "$number" | tr 0-9 a-j)
    dmsetup create "{prefix}$number" --table "0 $(blockdev --getsz "$disk") linear $disk 0"
done
"""

#: Name of the device-mapper device over data disk 1, without the number.
DISK_PREFIX = "lab-disk"


class GuestFile(NamedTuple):
    """A file's content and mode."""

    content: bytes
    mode: int = 0o644


def packages(release: str) -> tuple[str, ...]:
    """All packages of a node: nodes have no network to fetch more by."""
    fence = ("fence-agents-ipmilan", "fence-agents-mpath", "fence-agents-sbd")
    return (*_COMMON_PACKAGES, *(("fence-agents",) if release == "bookworm" else fence))


def image_files() -> dict[str, GuestFile]:
    """Files of the image, by path."""
    return {
        INIT: GuestFile(_INIT_SCRIPT.encode(), 0o755),
        "/etc/ssh/sshd_config.d/lab.conf": GuestFile(_SSHD_CONFIG.encode()),
        "/etc/systemd/journald.conf.d/lab.conf": GuestFile(_JOURNALD_CONFIG.encode()),
        "/etc/fstab": GuestFile(b"/dev/ubda / ext4 defaults 0 1\n"),
        "/etc/.updated": GuestFile(b""),
        "/var/.updated": GuestFile(b""),
    }


def masked_units() -> tuple[str, ...]:
    """Units that can never start in a node."""
    return _MASKED


def disabled_units() -> tuple[str, ...]:
    """Units that the rollout enables where it needs them."""
    return _NOT_ENABLED


def data_mounts(spec: LabSpec) -> tuple[tuple[str, str], ...]:
    """Label and mount point of each of a storage node's data disks."""
    names = ["main", *(f"disk{k}" for k in range(2, spec.disks + 1))][: spec.disks]
    return tuple((f"sanctl-{name}", f"/srv/sanctl/{name}") for name in names)


def identity_files(
    spec: LabSpec,
    node: NodeSpec,
    *,
    machine_id: str,
    host_key: str,
    host_public_key: str,
    login_key: str,
) -> dict[str, GuestFile]:
    """The files that differ from node to node, by path."""
    fstab = ["/dev/ubda / ext4 defaults 0 1"]
    # systemd-makefs(8): a disk with anything on it is left as it is.
    makefs = "" if spec.filesystem == EXT4 else ",x-systemd.makefs"
    disks = {}
    if node.role is Role.STORAGE and spec.disks:
        fstab += [
            f"/dev/mapper/{DISK_PREFIX}{number} {mount} {spec.filesystem}"
            f" defaults,nofail,x-systemd.requires=lab-disks.service{makefs} 0 2"
            for number, (_label, mount) in enumerate(data_mounts(spec), start=1)
            # A disk with flash in front is mounted by the unit that the rollout installs.
            if number > 1 or not spec.has_flash
        ]
        numbers = " ".join(str(number) for number in range(1, spec.all_disks + 1))
        script = _DISKS_SCRIPT.format(numbers=numbers, prefix=DISK_PREFIX)
        disks = {
            "/etc/systemd/system/lab-disks.service": GuestFile(_DISKS_SERVICE.encode()),
            "/usr/lib/sanctl-lab/disks": GuestFile(script.encode(), 0o755),
            "/etc/systemd/system/sysinit.target.d/lab-disks.conf": GuestFile(
                b"[Unit]\nWants=lab-disks.service\n"
            ),
        }
    return {
        **disks,
        "/etc/hostname": GuestFile(f"{node.name}\n".encode()),
        "/etc/hosts": GuestFile(hosts_file(spec).encode()),
        "/etc/machine-id": GuestFile(f"{machine_id}\n".encode(), 0o444),
        "/etc/fstab": GuestFile(("\n".join(fstab) + "\n").encode()),
        "/etc/ssh/ssh_host_ed25519_key": GuestFile(host_key.encode(), 0o600),
        # As on any server: the rollout of a second site reads it.
        "/etc/ssh/ssh_host_ed25519_key.pub": GuestFile(host_public_key.encode()),
        "/root/.ssh/authorized_keys": GuestFile(login_key.encode(), 0o600),
        "/etc/iscsi/initiatorname.iscsi": GuestFile(
            f"InitiatorName={node.initiator_iqn}\n".encode(), 0o600
        ),
    }


def hosts_file(spec: LabSpec) -> str:
    """Every node by its heartbeat address."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{node.address(Network.HEARTBEAT)} {node.name}" for node in spec.machines]
    return "\n".join(lines) + "\n"


def link_commands(node: NodeSpec) -> str:
    """The `ip -batch` lines that name the NICs and give them their addresses.

    NICs come up in the order of the kernel's vec0, vec1 … arguments, so that is their name here.
    """
    lines = []
    for number, network in enumerate(node.networks):
        lines += [
            f"link set vec{number} name {network.nic}",
            f"addr add {node.address(network)}/{PREFIX_LENGTH} broadcast + dev {network.nic}",
            f"link set {network.nic} up",
        ]
    return "\n".join(lines) + "\n"


def config_disk(identity: Mapping[str, GuestFile], links: str, seed: bytes) -> bytes:
    """Pack a node's config disk."""
    members = {f"identity{path}": file for path, file in identity.items()}
    members["links"] = GuestFile(links.encode())
    members["seed"] = GuestFile(seed, 0o600)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folders: set[str] = set()
        for path, file in sorted(members.items()):
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in folders:
                    folders.add(folder)
                    info = tarfile.TarInfo(folder)
                    info.type = tarfile.DIRTYPE
                    # sshd refuses keys below a folder that others can reach into.
                    info.mode = 0o700 if folder.endswith(("/root", "/.ssh")) else 0o755
                    archive.addfile(info)
            info = tarfile.TarInfo(path)
            info.size = len(file.content)
            info.mode = file.mode
            archive.addfile(info, io.BytesIO(file.content))
    return buffer.getvalue()
