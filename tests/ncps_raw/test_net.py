"""Names, routes and addresses, as the kernel of this machine or of a namespace tells them."""

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from loads import free_ports
from ncps_capture.errors import EnvironmentFault, UsageError

from ncps_raw import net

LINUX = sys.platform.startswith("linux")


def answers(*addresses: str) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    """What getaddrinfo returns for a name with these addresses."""
    found = []
    for address in addresses:
        v6 = ":" in address
        family = socket.AF_INET6 if v6 else socket.AF_INET
        found.append((family, socket.SOCK_STREAM, 6, "", (address, 0, 0, 0) if v6 else (address, 0)))
    return found


# ---- resolving ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "family", "address"),
    [
        ("192.0.2.7", socket.AF_INET, ("192.0.2.7", 0)),
        ("2001:db8::1", socket.AF_INET6, ("2001:db8::1", 0, 0, 0)),
        ("2001:0db8:0:0::0001", socket.AF_INET6, ("2001:db8::1", 0, 0, 0)),
        ("::1", socket.AF_INET6, ("::1", 0, 0, 0)),
    ],
)
def test_numeric_addresses(name: str, family: int, address: tuple[object, ...]) -> None:
    target = net.resolve(name)
    assert (target.family, target.address, target.note) == (family, address, None)
    assert target.host == address[0]


def test_a_scope_stays_in_the_address() -> None:
    lo = socket.if_nametoindex(net.loopback_name() or "lo")
    target = net.resolve(f"fe80::1%{net.loopback_name()}")
    assert target.address[3] == lo


def test_localhost_is_here() -> None:
    target = net.resolve("localhost")
    assert target.host in ("127.0.0.1", "::1")


def test_ipv4_comes_first_and_the_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a: answers("2001:db8::2", "192.0.2.9", "192.0.2.8"))
    target = net.resolve("host.example")
    assert target.address == ("192.0.2.9", 0)
    assert target.note == "host.example is 192.0.2.9 (also 192.0.2.8, 2001:db8::2)"


def test_source_addresses_choose_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(name: str, port: None, family: int, kind: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        every = answers("192.0.2.9", "2001:db8::2")
        return [a for a in every if family in (socket.AF_UNSPEC, a[0])]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert net.resolve("host.example", ("::1",)).host == "2001:db8::2"
    assert net.resolve("host.example", ("127.0.0.1",)).host == "192.0.2.9"
    assert net.resolve("host.example").host == "192.0.2.9"


def test_an_unknown_name_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*a: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(UsageError) as caught:
        net.resolve("no-such-host.example")
    assert str(caught.value) == (
        "cannot resolve no-such-host.example: Name or service not known; give a name or address that exists"
    )


@pytest.mark.parametrize("name", ["a" * 70 + ".example", "x..y"])
def test_a_name_that_cannot_be_one_is_one_line_too(name: str) -> None:
    with pytest.raises(UsageError, match=r"^cannot resolve ") as caught:
        net.resolve(name)
    assert "\n" not in str(caught.value)


def test_an_address_of_the_other_version_than_the_source() -> None:
    with pytest.raises(UsageError, match=r"cannot resolve 127\.0\.0\.1 for an address of the family of ::1"):
        net.resolve("127.0.0.1", ("::1",))


def localhost_is(patch: pytest.MonkeyPatch, *addresses: str) -> None:
    def lookup(name: str, port: None, family: int, kind: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        return [a for a in answers(*addresses) if family in (socket.AF_UNSPEC, a[0])]

    patch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.parametrize("known", [("::1",), ("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("127.0.0.1",)])
@pytest.mark.parametrize(("listens", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1"), ("0.0.0.0", "::1")])
def test_localhost_is_where_something_listens(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], listens: str, other: str
) -> None:
    # Below the ports that the kernel gives to clients: a client of another process on the other family's port would
    # look as if something listened there.
    (port,) = free_ports(1)
    with socket.socket(net.family_of(listens)) as server:
        server.bind((listens, port))
        server.listen()
        localhost_is(monkeypatch, *known)
        target = net.resolve("localhost", port=port)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()  # it was found out without a connection
    assert target.host == ("127.0.0.1" if listens == "0.0.0.0" else listens)
    assert target.note == f"localhost is {target.host}: nothing listens on {other} port {port}"


def test_localhost_is_ipv4_where_nothing_or_all_of_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    localhost_is(monkeypatch, "::1", "127.0.0.1")
    (port,) = free_ports(1)
    assert net.resolve("localhost", port=port).note == "localhost is 127.0.0.1 (also ::1)"
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True):
        assert net.resolve("localhost", port=port).host == "127.0.0.1"


def test_localhost_keeps_the_family_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    localhost_is(monkeypatch, "::1", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert net.resolve("localhost", ("::1",), server.getsockname()[1]).host == "::1"


def test_where_who_listens_cannot_be_known_the_first_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    localhost_is(monkeypatch, "::1", "127.0.0.1")
    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert net.resolve("localhost", port=80).host == "127.0.0.1"


def test_names_elsewhere_are_not_asked_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    localhost_is(monkeypatch, "2001:db8::2", "192.0.2.9")
    monkeypatch.setattr(socket, "socket", None)
    assert net.resolve("host.example", port=80).note == "host.example is 192.0.2.9 (also 2001:db8::2)"


def test_resolving_is_timed_and_an_address_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1_000, 5_500])
    monkeypatch.setattr(net.time, "monotonic_ns", lambda: next(times))
    localhost_is(monkeypatch, "192.0.2.9")
    assert net.resolve("host.example").resolved_ns == 4_500
    monkeypatch.undo()
    assert net.resolve("192.0.2.9").resolved_ns is None


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("127.4.5.6", True),
        ("[::1]", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("fe80::1%lo", False),
    ],
)
def test_what_means_loopback(name: str, here: bool) -> None:
    assert net.means_loopback(name) is here


# ---- source addresses ---------------------------------------------------------------------------------------------


def test_own_addresses_may_be_bound() -> None:
    net.check_bind("127.0.0.1")
    net.check_bind("127.0.0.77" if LINUX else "127.0.0.1")
    net.check_bind("::1")
    net.check_bind("0.0.0.0")
    assert net.bind_targets(("127.0.0.1",), socket.AF_INET) == ("127.0.0.1",)
    assert net.bind_targets((), socket.AF_INET6) == ()


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_named(address: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        net.check_bind(address)
    message = str(caught.value)
    assert message.startswith(f"cannot bind to {address}: ")
    assert "give an address of this machine" in message
    assert caught.value.exit_code == 3


@pytest.mark.skipif(not LINUX, reason="reads Linux's list of addresses")
def test_a_link_local_address_is_bound_with_its_scope() -> None:
    lines = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    own = [(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(w[0])), w[5]) for w in lines if w[0].startswith("fe80")]
    if not own:
        pytest.skip("no link-local address here")
    address, name = own[0]
    net.check_bind(f"{address}%{name}")
    net.check_bind(f"{address}%{socket.if_nametoindex(name)}")
    with pytest.raises(EnvironmentFault, match=f"^cannot bind to {address}%lo: "):
        net.check_bind(f"{address}%lo")


def test_a_link_local_source_needs_its_scope() -> None:
    with pytest.raises(UsageError, match=r"^fe80::1 is link-local: say by which interface, as in fe80::1%eth0$"):
        net.check_bind("fe80::1")
    with pytest.raises(EnvironmentFault, match=r"^cannot bind to fe80::1%nowhere: "):
        net.check_bind("fe80::1%nowhere")


@pytest.mark.parametrize(
    ("address", "taken"),
    [("127.0.0.1", ("127.0.0.1", 7)), ("::1", ("::1", 7)), ("fe80::1%3", ("fe80::1", 7, 0, 3))],
)
def test_what_bind_takes(address: str, taken: tuple[object, ...]) -> None:
    assert net.socket_address(address, 7) == taken


def test_the_first_source_that_is_not_of_this_machine_is_named() -> None:
    bind = ("127.0.0.1", "127.0.0.2", "192.0.2.8", "192.0.2.9")
    with pytest.raises(EnvironmentFault, match=r"^cannot bind to 192\.0\.2\.8: "):
        net.bind_targets(bind, socket.AF_INET)


def test_sources_of_both_versions_do_not_mix() -> None:
    with pytest.raises(UsageError, match="cannot use source address ::1: the target is of the other IP version"):
        net.bind_targets(("127.0.0.1", "::1"), socket.AF_INET)


@pytest.mark.parametrize(("address", "family"), [("1.2.3.4", socket.AF_INET), ("fe80::1%lo", socket.AF_INET6)])
def test_the_family_of_an_address(address: str, family: int) -> None:
    assert net.family_of(address) == family


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%lo", False)],
)
def test_loopback_addresses(address: str, loopback: bool) -> None:
    assert net.is_loopback(address) is loopback


# ---- routes -------------------------------------------------------------------------------------------------------


def test_loopback_is_reached_by_loopback() -> None:
    for name in ("127.0.0.1", "127.1.2.3", "::1"):
        route = net.route_to(net.resolve(name))
        assert route == net.Route(net.loopback_name() or "", loopback=True)


def test_interfaces_have_names() -> None:
    name = net.loopback_name()
    assert name is not None
    assert name in net.interfaces()
    assert net.interface_of("127.0.0.1") == net.interface_of("::1") == name
    assert net.interface_of("192.0.2.77") is None
    assert net.interface_of("fe80::1%eth7") == "eth7"


def test_where_the_kernel_cannot_be_asked_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert net.route_to(net.resolve("192.0.2.1")) is None


NAMESPACE = """
import json, subprocess
from ncps_raw import net

def ip(line):
    subprocess.run(["ip", *line.split()], check=True)

def ask(name):
    route = net.route_to(net.resolve(name))
    return route and [route.interface, route.loopback]

found = {"alone": ask("10.7.0.2"), "alone6": ask("fd07::2")}
ip("link set lo up")
ip("link add v0 type veth peer name v1")
ip("addr add 10.7.0.1/24 dev v0")
ip("addr add fd07::1/64 dev v0 nodad")
ip("link set v0 up")
ip("link set v1 up")
ip("route add 192.0.2.0/24 via 10.7.0.9")
ip("route add unreachable 198.51.100.0/24")
names = "10.7.0.2 10.7.0.1 fd07::2 fd07::1 192.0.2.5 198.51.100.1 203.0.113.1 fe80::1%v1 127.0.0.1"
found |= {name: ask(name) for name in names.split()}
print(json.dumps(found))
"""


@pytest.mark.namespaces
def test_routes_are_those_of_the_kernel() -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", NAMESPACE], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "alone": None,
        "alone6": None,
        "10.7.0.2": ["v0", False],
        "fd07::2": ["v0", False],
        "10.7.0.1": ["lo", True],  # an address of this machine
        "fd07::1": ["lo", True],
        "192.0.2.5": ["v0", False],
        "198.51.100.1": None,
        "203.0.113.1": None,
        "fe80::1%v1": ["v1", False],
        "127.0.0.1": ["lo", True],
    }


@pytest.mark.namespaces
def test_the_interface_of_an_own_address_is_found() -> None:
    script = (
        "ip link add v0 type veth peer name v1; ip addr add 10.7.0.1/24 dev v0;"
        "ip addr add 10.8.0.1 peer 10.8.0.2 dev v1;"
        "ip -6 addr add fd07::1/64 dev v0 nodad; ip link set v0 up; ip link set v1 up;"
        f"{sys.executable} -c 'from ncps_raw import net\n"
        'print([net.interface_of(a) for a in ("10.7.0.1", "10.8.0.1", "10.8.0.2", "fd07::1", "10.7.0.9")])\''
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "['v0', 'v1', None, 'v0', None]\n", done.stderr


# ---- ports --------------------------------------------------------------------------------------------------------


def test_a_free_block_can_be_bound() -> None:
    first = net.free_port_block(3)
    held = [socket.socket() for _ in range(3)]
    try:
        for i, sock in enumerate(held):
            sock.bind(("127.0.0.1", first + i))
        assert net.free_port_block(3) != first
        for sock in held[1:]:
            sock.close()
        assert net.free_port_block(3) != first
    finally:
        for sock in held:
            sock.close()


def test_without_a_free_block_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(socket, "socket", Busy)
    with pytest.raises(EnvironmentFault, match="no 2 consecutive ports from 20001 to 32000 are free"):
        net.free_port_block(2)


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_the_systems_own_figures() -> None:
    low, high = net.local_port_range()
    assert [low, high] == [int(word) for word in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()]
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert low <= sock.getsockname()[1] <= high


def test_without_proc_there_is_a_range_and_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*a: object, **k: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", gone)
    assert net.local_port_range() == (49152, 65535)
    assert net.time_wait_count() is None


@pytest.mark.namespaces
def test_sockets_in_time_wait_are_counted() -> None:
    (port,) = free_ports(1)
    code = (
        "import socket; from ncps_raw import net; before = net.time_wait_count()\n"
        f"listener = socket.create_server(('127.0.0.1', {port}))\n"
        "for _ in range(3):\n"
        "    one = socket.create_connection(listener.getsockname()); other, _ = listener.accept()\n"
        "    one.close(); assert other.recv(1) == b''; other.close()\n"
        "print(before, net.time_wait_count())"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["0", "3"], done.stderr
