"""Addresses against the IANA special-purpose registries, restated here one example a line."""

from ipaddress import ip_address

import pytest

from pipeline.callbacks.networks import listed_networks, rule_against

NEVER = {
    "169.254.169.254": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "fd00:ec2::254": "metadata",
    "169.254.0.1": "link-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "::": "unspecified",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "ff02::1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
}
UNLESS_LISTED = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "10.0.0.5": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "fd00::1": "private",
    "fec0::1": "private",
    "100.64.0.1": "carrier-nat",
    "100.127.255.255": "carrier-nat",
    "192.0.2.1": "documentation",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "198.18.0.1": "benchmarking",
    "192.0.0.8": "protocol",
    "192.88.99.1": "protocol",
    "2001::1": "protocol",  # Teredo
    "100::1": "protocol",
    "64:ff9b:1::7f00:1": "protocol",
}
IN_OTHER_CLOTHES = {
    "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "private",
    "::ffff:169.254.169.254": "metadata",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "metadata",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::e000:1": "multicast",
    "2002:7f00:1::": "loopback",
    "2002:a9fe:a9fe::1": "metadata",
    "2002:c0a8:101::1": "private",
}
UNASSIGNED = ["::127.0.0.1", "::2", "1::1", "4000::1", "e000::1", "fe00::1"]
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "223.255.255.255", "2606:4700::1111"]
PUBLIC_IN_OTHER_CLOTHES = ["::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize(("address", "rule"), list((NEVER | UNLESS_LISTED | IN_OTHER_CLOTHES).items()))
def test_an_address_that_points_inwards_is_forbidden_by_its_rule(address: str, rule: str) -> None:
    assert rule_against(ip_address(address)) == rule


@pytest.mark.parametrize("address", UNASSIGNED)
def test_ipv6_space_that_nobody_was_given_is_forbidden(address: str) -> None:
    assert rule_against(ip_address(address)) == "unassigned"


@pytest.mark.parametrize("address", PUBLIC + PUBLIC_IN_OTHER_CLOTHES)
def test_a_public_address_is_allowed(address: str) -> None:
    assert rule_against(ip_address(address)) is None


@pytest.mark.parametrize(("address", "network"), [("10.20.0.8", "10.20.0.0/16"), ("::1", "::1/128"), ("::ffff:10.20.0.8", "10.20.0.8/32")])
def test_a_listed_network_is_allowed(address: str, network: str) -> None:
    assert rule_against(ip_address(address), listed=listed_networks([network])) is None


def test_beside_a_listed_network_all_stays_forbidden() -> None:
    assert rule_against(ip_address("10.21.0.8"), listed=listed_networks(["10.20.0.0/16"])) == "private"


@pytest.mark.parametrize(("address", "network"), [("100.100.100.200", "100.64.0.0/10"), ("fd00:ec2::254", "fc00::/7")])
def test_a_metadata_service_inside_a_listed_network_stays_forbidden(address: str, network: str) -> None:
    assert rule_against(ip_address(address), listed=listed_networks([network])) == "metadata"


@pytest.mark.parametrize("address", ["64:ff9b::10.20.0.8", "2002:a14:8::1"])
def test_a_listed_network_says_nothing_about_the_far_side_of_a_translator(address: str) -> None:
    assert rule_against(ip_address(address), listed=listed_networks(["10.0.0.0/8"])) == "private"


def test_the_installation_s_own_network_is_denied_inside_a_listed_one() -> None:
    listed, denied = listed_networks(["10.0.0.0/8"]), listed_networks(["10.1.0.0/16"])

    assert rule_against(ip_address("10.1.0.9"), listed=listed, denied=denied) == "denied"
    assert rule_against(ip_address("10.2.0.9"), listed=listed, denied=denied) is None


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.0/7", "169.254.0.0/16", "8.8.8.0/24", "10.0.0.1/8", "hospital"])
def test_a_list_entry_that_is_not_one_private_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=r"network|address|host bits"):
        listed_networks([network])
