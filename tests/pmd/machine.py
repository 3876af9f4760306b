# SPDX-License-Identifier: BSD-3-Clause
"""A QEMU machine with two emulated adapters on one cable, which a driver of DPDK's drives in the guest. What the guest
asks for of its outside it prints: a line `--- ask COMMAND DEVICE [up|down]` becomes a command to QEMU's monitor."""

import dataclasses
import json
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from guest import Guest  # noqa: E402
import kernel  # noqa: E402

ASK = "--- ask "
IN_GUEST = "HOSTNIC_PMD_GUEST"  # the name of the adapter
MEMORY_MIB = 2600
HUGE_PAGES = 560
LIMIT_S = 1800
MONITOR_PATIENCE_S = 60
SLOTS = (5, 6)
PCI_ADDRESSES = [f"0000:00:{slot:02x}.0" for slot in SLOTS]


@dataclasses.dataclass(frozen=True)
class Adapter:
    name: str
    device: str    # QEMU's
    driver: str    # DPDK's
    bound_to: str  # the kernel's
    # Whether an IOMMU translates what the adapter reads and writes.
    iommu: bool = False
    quick: bool = False

    @property
    def removable(self):
        """vfio keeps an adapter until its program ends."""
        return not self.iommu


ADAPTERS = (
    Adapter("virtio", "virtio-net-pci", "net_virtio", "uio_pci_generic", quick=True),
    Adapter("e1000", "e1000", "net_e1000_em", "uio_pci_generic"),
    Adapter("e1000e", "e1000e", "net_e1000_em", "uio_pci_generic"),
    Adapter("vmxnet3", "vmxnet3", "net_vmxnet3", "uio_pci_generic"),
    Adapter("virtio, vfio", "virtio-net-pci,disable-legacy=on,iommu_platform=on", "net_virtio", "vfio-pci", True),
    Adapter("e1000e, vfio", "e1000e", "net_e1000_em", "vfio-pci", True),
)


class Machine(Guest):
    def __init__(self, adapter):
        super().__init__("pmd", LIMIT_S, [f"{IN_GUEST}={adapter.name}", f"{kernel.PLACE}={kernel.place()}"])
        self.adapter = adapter
        self.dump = self.directory / "cable.pcap"
        self.monitor_path = self.directory / "monitor"
        self.monitor = None

    def command(self, first):
        kind = ["-machine", "pc"]
        if self.adapter.iommu:
            kind = ["-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on,caching-mode=on"]
        words = f"console=ttyS0 quiet loglevel=2 panic=-1 mitigations=off hugepages={HUGE_PAGES} first={first}"
        cable = []
        for number, slot in enumerate(SLOTS):
            cable += ["-netdev", f"hubport,id=end{number},hubid=0", "-device",
                      f"{self.adapter.device},id=nic{number},netdev=end{number},addr={slot:#x},"
                      f"mac=52:54:00:00:00:0{number + 1}"]
        return ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB),
                *kind, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
                "-qmp", f"unix:{self.monitor_path},server=on,wait=off",
                "-kernel", kernel.image(), "-initrd", kernel.first_tree(), "-append",
                words + (" intel_iommu=on" if self.adapter.iommu else ""),
                "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                "-device", f"virtio-9p-pci,fsdev=root,mount_tag={kernel.TAG},addr=4", *cable,
                "-object", f"filter-dump,id=dump,netdev=end0,file={self.dump},maxlen=65536"]

    def heard(self, line):
        if not line.startswith(ASK):
            return line.startswith("qemu-system-x86_64: warning: hub 0 is not connected")
        command, device, *state = line.removeprefix(ASK).split()
        if command == "set_link":
            self.ask("set_link", name=device, up=state == ["up"])
        elif command == "device_del":
            self.ask("device_del", id=device)
        return True

    def ask(self, command, **arguments):
        """What the monitor refuses the guest finds out: it waits in vain."""
        if self.monitor is None:
            self.monitor = self.connect()
            self.ask("qmp_capabilities")
        self.monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.monitor.flush()
        for line in self.monitor:
            answer = json.loads(line)
            if "error" in answer:
                print(f"QEMU's monitor: {command}: {answer['error']['desc']}", flush=True)
            if "error" in answer or "return" in answer:
                return

    def connect(self):
        give_up = time.monotonic() + MONITOR_PATIENCE_S
        while True:
            monitor = socket.socket(socket.AF_UNIX)
            try:
                monitor.connect(str(self.monitor_path))
                return monitor.makefile("rw")
            except OSError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)
