"""Where a webhook may go. Asked when an endpoint is registered and again at every attempt."""

import re
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from queue import Empty, SimpleQueue
from typing import Final, Literal

from pipeline.callbacks.networks import Address, listed_networks, plain, rule_against
from pipeline.errors import RejectedInput, Unavailable

Lookup = Callable[[str, int], list[str]]
"""(host, port) to all its addresses; raises OSError where there is none."""

URL_LIMIT_CHARS: Final = 2048
WEB_PORTS: Final = {"https": 443, "http": 80}
FIRST_UNPRIVILEGED_PORT: Final = 1024
LAST_PORT: Final = 65535
SERVICE_PORTS: Final = frozenset(
    {
        *(2375, 2376, 2379, 2380, 6443, 10250, 10255),  # container engines, etcd, Kubernetes
        *(1433, 1521, 3306, 5432, 27017),  # databases
        *(6379, 6380, 11211, 26379),  # Redis, its Sentinel, memcached
        *(4369, 5672, 9092, 61616),  # message brokers
        *(5555, 8500, 9090, 9100, 9200, 9300),  # Flower, Consul, Prometheus, search
        *(2762, 4242, 11112),  # DICOM associations
    }
)
"""Usual ports of services that are no webhook receivers. An operator whose receiver sits on one lists the port."""

# Printable ASCII alone: one spelling for us, the resolver and the receiver. Backslashes are read as slashes by some.
_URL = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[!-.0-9:-~]*)(?P<path>/[!-~]*)?")
_AUTHORITY = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


class ForbiddenDestination(RejectedInput):
    """A callback address that the policy does not allow. Final: it is not tried again."""

    code = "destination-forbidden"
    title = "Webhooks may not be sent to this address"
    advice = "Use https and a public host, or ask the operator to list the receiver's network and port."

    def __init__(self, rule: str) -> None:
        # Not the address itself: its path may be a secret of the receiver.
        super().__init__(f"the address breaks the rule {rule}", rule=rule)
        self.rule = rule


class NameNotResolved(Unavailable):
    """The host's name has no address now, or the name service did not answer in time."""

    code = "name-not-resolved"
    title = "The receiver's name could not be resolved"


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address, taken apart once: what was checked is what is called."""

    scheme: Literal["https", "http"]
    host: str
    """Lower case, without brackets and without a final dot."""
    port: int
    path: str
    """Path and query, at least `/`."""

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == WEB_PORTS[self.scheme] else f"{host}:{self.port}"


def system_lookup(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Destination:
    """The policy of one installation.

    Parameters
    ----------
    allow_networks
        Private networks that receivers are in, as CIDR blocks; see `networks.listed_networks`.
    deny_networks
        Where the installation's own services are: denied although a wider network is listed.
    allow_ports
        Beyond 443 and those from 1024 on that no other service usually has (`SERVICE_PORTS`).
    allow_http
        Lets `http` addresses, and port 80, pass.
    lookup
        The name service.

    Raises
    ------
    ValueError
        A block is not a network or too wide to be one.
    """

    def __init__(
        self,
        *,
        allow_networks: Iterable[str] = (),
        deny_networks: Iterable[str] = (),
        allow_ports: Iterable[int] = (),
        allow_http: bool = False,
        lookup: Lookup = system_lookup,
    ) -> None:
        self._listed = listed_networks(allow_networks)
        self._denied = tuple(ip_network(block) for block in deny_networks)
        self._allow_ports = frozenset(allow_ports)
        self._allow_http = allow_http
        self._lookup = lookup

    def check_url(self, url: str) -> Target:
        """Check what the text of an address tells; nothing is looked up.

        Raises
        ------
        ForbiddenDestination
            It breaks a rule, which the error names.
        """
        target = _take_apart(url)
        if target.scheme == "http" and not self._allow_http:
            raise ForbiddenDestination("scheme")
        if not self._is_open(target):
            raise ForbiddenDestination("port")
        literal = _literal(target.host)
        if literal is not None:
            self._require_allowed(literal)
        return target

    def resolve(self, host: str, port: int, *, timeout_s: float) -> tuple[Address, ...]:
        """Look a name up once and check every address that it has: one that is forbidden forbids the name.

        Returns
        -------
        Addresses in the resolver's order. Connect to one of these, not to the name, which may mean
        something else a moment later.

        Raises
        ------
        ForbiddenDestination
            One of the addresses breaks a rule.
        NameNotResolved
            There is no address, or no answer in time.
        """
        literal = _literal(host)
        addresses = (literal,) if literal is not None else self._look_up(host, port, timeout_s=timeout_s)
        for address in addresses:
            self._require_allowed(address)
        return addresses

    def admit(self, url: str, *, timeout_s: float) -> Target:
        """Check an address in full, as at its registration: its text, then all that its name resolves to now."""
        target = self.check_url(url)
        self.resolve(target.host, target.port, timeout_s=timeout_s)
        return target

    def _is_open(self, target: Target) -> bool:
        if target.port in self._allow_ports or target.port in (WEB_PORTS["https"], WEB_PORTS[target.scheme]):
            return True
        return FIRST_UNPRIVILEGED_PORT <= target.port <= LAST_PORT and target.port not in SERVICE_PORTS

    def _require_allowed(self, address: Address) -> None:
        rule = rule_against(address, listed=self._listed, denied=self._denied)
        if rule is not None:
            raise ForbiddenDestination(rule)

    def _look_up(self, host: str, port: int, *, timeout_s: float) -> tuple[Address, ...]:
        answers: SimpleQueue[list[str]] = SimpleQueue()
        # The system's resolver cannot be told a limit and waits for tens of seconds: it may go on, we do not.
        threading.Thread(target=self._answer, args=(host, port, answers), daemon=True, name="webhook-lookup").start()
        try:
            found = answers.get(timeout=max(timeout_s, 0.0))
        except Empty:
            raise NameNotResolved("the name service did not answer in time", timeout_s=timeout_s) from None
        if not found:
            raise NameNotResolved
        return tuple(dict.fromkeys(plain(ip_address(text)) for text in found))

    def _answer(self, host: str, port: int, answers: "SimpleQueue[list[str]]") -> None:
        try:
            answers.put(self._lookup(host, port))
        except (OSError, UnicodeError):
            answers.put([])


def _take_apart(url: str) -> Target:
    matched = _URL.fullmatch(url) if len(url) <= URL_LIMIT_CHARS and "\\" not in url else None
    if matched is None:
        raise ForbiddenDestination("text")
    scheme = matched["scheme"].lower()
    if scheme not in WEB_PORTS:
        raise ForbiddenDestination("scheme")
    if "@" in matched["authority"]:
        raise ForbiddenDestination("userinfo")
    if "#" in url:
        raise ForbiddenDestination("fragment")
    split = _AUTHORITY.fullmatch(matched["authority"])
    if split is None:
        raise ForbiddenDestination("host")
    port = int(split["port"] or WEB_PORTS[scheme])
    return Target("http" if scheme == "http" else "https", _host(split), port, matched["path"] or "/")


def _host(split: re.Match[str]) -> str:
    if split["literal"] is not None:
        return _ipv6(split["literal"]).compressed
    host = split["name"].lower().removesuffix(".")
    labels = host.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ForbiddenDestination("host")
    if _NUMBER.fullmatch(labels[-1]) and _literal(host) is None:
        raise ForbiddenDestination("host")
    return host


def _ipv6(text: str) -> IPv6Address:
    try:
        return IPv6Address(text)
    except ValueError:
        raise ForbiddenDestination("host") from None


def _literal(host: str) -> Address | None:
    """Give the address that the resolver would read from the text itself; None for a name.

    `inet_aton` is what resolvers use: 127.1, 2130706433, 0x7f000001 and 0177.0.0.1 are all one address.
    """
    if ":" in host:
        return plain(_ipv6(host))
    if host == "localhost" or host.endswith(".localhost"):
        return IPv4Address("127.0.0.1")  # RFC 6761 6.3: never anything else
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
