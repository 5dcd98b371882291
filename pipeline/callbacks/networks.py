"""Which addresses a webhook may go to: explicit tables, since "global" is not the same as "not ours"."""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(blocks: Mapping[str, Sequence[str]]) -> tuple[tuple[str, Network], ...]:
    return tuple((rule, ip_network(block)) for rule, listed in blocks.items() for block in listed)


NEVER: Final = _table(
    {
        # Services that hand out the machine's own credentials; some lie inside networks that could be opted in.
        "metadata": [
            "169.254.169.254/32",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
        ],
        "unspecified": ["0.0.0.0/8", "::/128"],
        "link-local": ["169.254.0.0/16", "fe80::/10"],
        "multicast": ["224.0.0.0/4", "ff00::/8"],
        "reserved": ["240.0.0.0/4"],
    }
)
"""Denied whatever the operator lists. 0.0.0.0 and :: reach the machine itself."""

UNLESS_LISTED: Final = _table(
    {
        "loopback": ["127.0.0.0/8", "::1/128"],
        "private": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"],
        "carrier-nat": ["100.64.0.0/10"],
        "documentation": ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"],
        "benchmarking": ["198.18.0.0/15"],
        "protocol": ["192.0.0.0/24", "192.88.99.0/24", "2001::/23", "100::/64", "5f00::/16", "64:ff9b:1::/48"],
    }
)
"""Denied until the operator lists the network, or a part of it. RFC 6890 and the IANA special-purpose registries."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_ASSIGNED_IPV6: Final = IPv6Network("2000::/3")
"""The only IPv6 space that is handed out for unicast on the internet (RFC 4291, IANA)."""


def listed_networks(blocks: Iterable[str]) -> tuple[Network, ...]:
    """Read the networks that an operator opts in.

    Raises
    ------
    ValueError
        Not a network, or wider than one block of `UNLESS_LISTED`: "everything" is not a list, and public
        addresses need none.
    """
    networks = tuple(ip_network(block) for block in blocks)
    for network in networks:
        if not any(_lies_within(network, block) for _, block in UNLESS_LISTED):
            raise ValueError(f"{network} is not part of a private network: list each network that receivers are in")
    return networks


def plain(address: Address) -> Address:
    """Take an IPv4 address out of its IPv6 clothes: `::ffff:127.0.0.1` is connected to as 127.0.0.1."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def rule_against(address: Address, *, listed: Sequence[Network] = (), denied: Sequence[Network] = ()) -> str | None:
    """Name the rule that forbids an address; None where a webhook may go.

    What a translator (NAT64, 6to4) would unwrap must be public: a listed network says nothing about the
    far side of a translator.
    """
    address = plain(address)
    carried = _carried(address)
    if carried is not None:
        return rule_against(carried, denied=denied)
    if any(address in network for network in denied):
        return "denied"
    never = _rule(NEVER, address)
    if never is not None or any(address in network for network in listed):
        return never
    return _rule(UNLESS_LISTED, address) or _unassigned(address)


def _rule(table: Sequence[tuple[str, Network]], address: Address) -> str | None:
    return next((rule for rule, block in table if address in block), None)


def _unassigned(address: Address) -> str | None:
    return "unassigned" if isinstance(address, IPv6Address) and address not in _ASSIGNED_IPV6 else None


def _carried(address: Address) -> IPv4Address | None:
    """Give the IPv4 address inside a NAT64 (RFC 6052) or 6to4 (RFC 3056) address."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return None


def _lies_within(network: Network, block: Network) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(block, IPv4Network) and network.subnet_of(block)
    return isinstance(block, IPv6Network) and network.subnet_of(block)
