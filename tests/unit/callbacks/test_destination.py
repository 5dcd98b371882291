"""Addresses that point inwards, in every spelling that somebody has used; no name service is asked."""

from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.callbacks.destination import Destination, ForbiddenDestination, Lookup, NameNotResolved

INWARDS = [
    "http://127.0.0.1:6379/",
    "http://localhost:5555/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://169.254.169.254/latest/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fd00::1]/",
    "http://10.0.0.5/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://0.0.0.0/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://127.0.0.1%2f@hook.example/",
    "http://hook.example@127.0.0.1/",
    "http://127\u30020\u30020\u30021/",
    "http://LOCALHOST./",
    "http://any.localhost/",
    "http://127.0.0.1./",
    "http://\u2460\u2461\u2466.0.0.1/",
]
MALFORMED = [
    "",
    "ftp://hook.example/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "javascript:alert(1)",
    "//hook.example/x",
    "hook.example/x",
    "https://user:secret@hook.example/",
    "https://@hook.example/",
    "https:///nohost",
    "https://:443/",
    "https://hook.example/\r\nX-Evil: 1",
    "https://hook.example/a b",
    "https://hook.example/\x00",
    "https://hook.example\\@127.0.0.1/",
    "https://hook.example\\.evil.example/",
    "https://hook.example/#part",
    "https://hook.example#@127.0.0.1/",
    "https://hook.example?x",
    "https://" + "a" * 300 + ".example/",
    "https://" + "a" * 64 + ".example/",
    "https://hook..example/",
    "https://-hook.example/",
    "https://hook.example:/",
    "https://hook.example:0/",
    "https://hook.example:65536/",
    "https://hook.example:99999/",
    "https://256.1.1.1/",
    "https://1.2.3.4.5/",
    "https://hook.0x7f/",
    "https://[1.2.3.4]/",
    "https://[::1/",
    "https://[1:2]/",
    "https://[::1]x/",
    "https://hook.example/" + "a" * 2048,
]


def answers(*addresses: str) -> Lookup:
    return lambda host, port: list(addresses)


def never_asked(host: str, port: int) -> list[str]:
    raise AssertionError("the text alone tells; nobody may be asked")


@pytest.mark.parametrize("url", INWARDS + MALFORMED)
def test_the_text_of_an_inward_or_malformed_address_is_enough_to_refuse_it(url: str) -> None:
    policy = Destination(allow_http=True, lookup=never_asked)

    with pytest.raises(ForbiddenDestination):
        policy.check_url(url)


@given(st.text(max_size=60))
def test_any_text_is_either_taken_apart_or_refused(text: str) -> None:
    policy = Destination(lookup=never_asked)

    for url in (text, f"https://{text}", f"https://hook.example{text}"):
        try:
            target = policy.check_url(url)
        except ForbiddenDestination:
            continue
        assert target.scheme == "https"
        assert url.isascii()


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://hook.example", "hook.example", 443, "/", "hook.example"),
        ("HTTPS://Hook.Example./a?b=c&d", "hook.example", 443, "/a?b=c&d", "hook.example"),
        ("https://hook.example:8443/x", "hook.example", 8443, "/x", "hook.example:8443"),
        ("https://hook.example:443/x", "hook.example", 443, "/x", "hook.example"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/", "8.8.8.8"),
        ("https://[2606:4700:0::1111]:9443/", "2606:4700::1111", 9443, "/", "[2606:4700::1111]:9443"),
    ],
)
def test_a_good_address_is_taken_apart(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = Destination(lookup=never_asked).check_url(url)

    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)


@pytest.mark.parametrize("port", [22, 25, 80, 104, 1023, 2375, 5432, 6379, 5672, 9200, 27017])
def test_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(ForbiddenDestination) as refused:
        Destination().check_url(f"https://hook.example:{port}/")

    assert refused.value.rule == "port"


@pytest.mark.parametrize("port", [443, 1024, 8080, 8443, 65535])
def test_ports_of_web_servers_are_open(port: int) -> None:
    assert Destination().check_url(f"https://hook.example:{port}/").port == port


def test_an_operator_may_list_another_port() -> None:
    assert Destination(allow_ports=[9200]).check_url("https://hook.example:9200/").port == 9200


def test_http_needs_the_operator_s_word() -> None:
    url = "http://hook.example/"

    with pytest.raises(ForbiddenDestination) as refused:
        Destination().check_url(url)

    assert refused.value.rule == "scheme"
    assert Destination(allow_http=True).check_url(url).port == 80


@pytest.mark.parametrize("url", ["http://10.20.0.8:8443/result", "https://ris.hospital.test/ai"])
def test_a_hospital_s_own_receiver_passes_once_its_network_is_listed(url: str) -> None:
    lookup = answers("10.20.0.9")

    listing = Destination(allow_networks=["10.20.0.0/16"], allow_http=True, lookup=lookup)
    not_listing = Destination(allow_http=True, lookup=lookup)

    assert listing.admit(url, timeout_s=5.0).path in {"/result", "/ai"}
    with pytest.raises(ForbiddenDestination):
        not_listing.admit(url, timeout_s=5.0)


def test_one_forbidden_address_forbids_the_name() -> None:
    policy = Destination(lookup=answers("8.8.8.8", "10.0.0.5"))

    with pytest.raises(ForbiddenDestination) as refused:
        policy.resolve("two-addresses.test", 443, timeout_s=5.0)

    assert refused.value.rule == "private"


def test_all_good_addresses_come_in_the_resolver_s_order_and_once() -> None:
    policy = Destination(lookup=answers("2606:4700::1111", "1.1.1.1", "::ffff:1.1.1.1"))

    addresses = policy.resolve("hook.test", 443, timeout_s=5.0)

    assert [str(address) for address in addresses] == ["2606:4700::1111", "1.1.1.1"]


def test_a_name_that_turned_inwards_after_registration_is_refused_at_delivery() -> None:
    meanings = iter([["8.8.8.8"], ["127.0.0.1"]])
    policy = Destination(lookup=lambda host, port: next(meanings))
    target = policy.admit("https://rebind.test/", timeout_s=5.0)

    with pytest.raises(ForbiddenDestination) as refused:
        policy.resolve(target.host, target.port, timeout_s=5.0)

    assert refused.value.rule == "loopback"


@pytest.mark.parametrize("host", ["8.8.8.8", "0x08080808", "134744072", "010.8.8.8"])
def test_a_spelled_out_address_asks_nobody(host: str) -> None:
    (address,) = Destination(lookup=never_asked).resolve(host, 443, timeout_s=5.0)

    assert str(address) == "8.8.8.8"


def test_a_name_without_an_address_is_trouble_not_a_refusal() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    for lookup in (unknown, answers()):
        with pytest.raises(NameNotResolved):
            Destination(lookup=lookup).resolve("hook.test", 443, timeout_s=5.0)


def test_a_name_service_that_hangs_holds_nobody_longer_than_the_limit() -> None:
    released = Event()

    def hang(host: str, port: int) -> list[str]:
        released.wait(timeout=30)
        return ["8.8.8.8"]

    with pytest.raises(NameNotResolved, match="in time"):
        Destination(lookup=hang).resolve("hook.test", 443, timeout_s=0.05)

    assert not released.is_set()
    released.set()


def test_an_error_does_not_repeat_the_address() -> None:
    with pytest.raises(ForbiddenDestination) as refused:
        Destination().check_url("https://10.0.0.5/hooks/s3cret")

    assert "s3cret" not in str(refused.value)
    assert refused.value.facts == {"rule": "private"}
