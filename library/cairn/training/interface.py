"""Which network interface carries an address, so that workers of several hosts find each other.

gloo takes the address that the host's own name resolves to, on many machines 127.0.0.1, and then no other host can
connect. The address that Ray reached the node by is known to work; its interface is what gloo and nccl are told.
"""

from __future__ import annotations

import os

import psutil

from cairn.errors import CairnError

VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def interface_of(address: str) -> str:
    """The name (`eth0`) of the interface that has the IPv4 or IPv6 `address`; CairnError when none has it."""
    interfaces = psutil.net_if_addrs()
    for name, addresses in interfaces.items():
        if any(found.address.partition("%")[0] == address for found in addresses):
            return name
    known = {found.address for addresses in interfaces.values() for found in addresses}
    raise CairnError(
        f"no network interface has the address {address}, they have {', '.join(sorted(known))}",
        next_step="start Ray with --node-ip-address set to one of them",
    )


def bind_to(address: str) -> None:
    """Make process groups of this process meet on the interface of `address`; what the environment says already holds."""
    for variable in VARIABLES:
        if not os.environ.get(variable):
            os.environ[variable] = interface_of(address)
