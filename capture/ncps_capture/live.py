"""Frames from a network interface, by libpcap (edge). The only module that imports pcapy, and only when asked to.

Three verbs: open, batch, close. One idea: never wait inside libpcap. On an idle link a blocking read does not come
back, not even for SIGTERM, so the handle is non-blocking and waiting is done with poll on its descriptor. Knows
nothing of handshakes; what is in a frame is the filter's and the decoder's business.
"""

from __future__ import annotations

import ctypes
import select
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from ncps_capture.errors import CaptureUnavailable, NcpsError, UsageError
from ncps_capture.filter import bpf_text
from ncps_capture.segments import Batch, CaptureSpec

HAND_OVER_MS: Final = 20
"""How long the kernel may keep a captured frame before it hands it over (libpcap's read timeout)."""

_MAX_BATCH: Final = 65536  # frames
_META: Final = np.dtype([("seconds", "=u4"), ("microseconds", "=u4"), ("offset", "=u4"), ("caplen", "=u4")])

_SOL_PACKET: Final = 263
_PACKET_IGNORE_OUTGOING: Final = 23  # Linux 4.20

_NO_SUCH_DEVICE: Final = -5
_NO_PERMISSION: Final = (-8, -11)
_NOT_UP: Final = -9

_LINK_NAMES: Final = {
    0: "NULL",
    1: "EN10MB",
    9: "PPP",
    10: "FDDI",
    12: "RAW",
    14: "RAW",
    50: "PPP_SERIAL",
    51: "PPP_ETHER",
    101: "RAW",
    104: "C_HDLC",
    105: "IEEE802_11",
    108: "LOOP",
    113: "LINUX_SLL",
    119: "PRISM_HEADER",
    127: "IEEE802_11_RADIO",
    163: "IEEE802_11_RADIO_AVS",
    192: "PPI",
    197: "ERF",
    228: "IPV4",
    229: "IPV6",
    239: "NFLOG",
    242: "IPOIB",
    258: "PKTAP",
    276: "LINUX_SLL2",
}


class LiveSource:
    """An open capture on one interface. Not for sharing between threads: closing under a reader crashes libpcap."""

    def __init__(self, handle: Any, interface: str, link_type: int, filter_text: str, note: str | None) -> None:
        self.interface = interface
        self.link_type = link_type
        self.filter_text = filter_text
        self.note = note  # what a reader of the figures should know about this capture, in one line
        self._handle = handle
        self._poll = select.poll()
        self._poll.register(handle.getfd(), select.POLLIN)
        self._frames = 0
        self._drain()
        self._drops_before = int(handle.stats()[1])

    def batch(self, timeout_ms: int) -> Batch | None:
        """The frames at hand, waiting at most ``timeout_ms`` for the first; None if there are none.

        Frame numbers count from 1 over the life of the source. Times have the resolution of a microsecond.
        libpcap does not pass on the length of a frame before it was cut, so ``lengths`` is ``caplens``.
        """
        if not self._poll.poll(timeout_ms):
            return None
        data, packed = self._read()
        meta = np.frombuffer(packed, _META)
        if len(meta) == 0:
            return None
        first_frame = self._frames + 1
        self._frames += len(meta)
        caplens = meta["caplen"].astype(np.int64)
        return Batch(
            data=np.frombuffer(data, np.uint8),
            offsets=meta["offset"].astype(np.int64),
            caplens=caplens,
            lengths=caplens,
            t_ns=meta["seconds"].astype(np.int64) * 1_000_000_000 + meta["microseconds"].astype(np.int64) * 1000,
            link_type=self.link_type,
            first_frame=first_frame,
            source=0,
        )

    def dropped(self) -> int:
        """Frames that matched and were lost since opening. Right as long as it is asked once every 2^32 drops.

        Of libpcap's figures only this one means what it says: ``recv`` counts frames on loopback twice.
        """
        return (int(self._handle.stats()[1]) - self._drops_before) & 0xFFFFFFFF

    def fileno(self) -> int:
        """The descriptor that becomes readable when frames are at hand."""
        return int(self._handle.getfd())

    def close(self) -> None:
        """Stop capturing; closing twice is allowed."""
        self._handle.close()

    def _read(self) -> tuple[bytes, bytes]:
        try:
            data, packed = self._handle.next_batch(_MAX_BATCH)
        except Exception as error:  # pcapy.PcapError cannot be named without importing pcapy
            raise CaptureUnavailable(f"cannot go on capturing on {self.interface}: {error}") from error
        return data, packed

    def _drain(self) -> None:
        """Throw away what was queued between activation and filter: nothing had judged it.

        A frame may be in the kernel's hands for the read timeout before it is seen here, hence twice that.
        """
        deadline = time.monotonic() + 2 * HAND_OVER_MS / 1000
        while (left := deadline - time.monotonic()) > 0:
            if self._poll.poll(left * 1000):
                self._read()


def open_live(spec: CaptureSpec) -> LiveSource:
    """Start capturing what ``spec`` asks for; when this returns, nothing that matches is missed any more.

    CaptureUnavailable says in one line why not (no pcapy, no right, no such interface, not up) and what would help;
    UsageError that the filter of ``spec`` is none.
    """
    pcapy = _pcapy(spec.interface)
    try:
        handle = pcapy.create(spec.interface)
        handle.set_snaplen(spec.snaplen)
        handle.set_promisc(False)
        handle.set_timeout(HAND_OVER_MS)
        handle.set_buffer_size(spec.buffer_bytes)
        status = int(handle.activate())
        if status < 0:
            raise CaptureUnavailable(_why_not(spec.interface, status))
        link_type = int(handle.datalink())
        note = _spare_outgoing(handle) if spec.loopback else None
        filter_text = spec.own_filter
        if filter_text is None:
            filter_text = bpf_text(link_type, spec.server_ports, spec.level, tagged=not spec.loopback)
            _set_filter(handle, filter_text, spec.interface, CaptureUnavailable)
        else:
            _set_filter(handle, filter_text, spec.interface, UsageError)
        handle.setnonblock(1)
    except pcapy.PcapError as error:
        raise CaptureUnavailable(_in_words(spec.interface, str(error))) from error
    return LiveSource(handle, spec.interface, link_type, filter_text, note)


def _set_filter(handle: Any, text: str, interface: str, fault: type[NcpsError]) -> None:
    """``fault``: whose it is that the filter is refused, that of who typed it or of this machine."""
    try:
        handle.setfilter(text)
    except Exception as error:  # pcapy.PcapError cannot be named without importing pcapy
        raise fault(
            f"cannot capture on {interface}: the filter {text!r} is not accepted: {' '.join(str(error).split())}; "
            "see man pcap-filter"
        ) from error


def find_devices() -> list[str]:
    """Names of the interfaces that libpcap sees here, in its order. CaptureUnavailable if it cannot tell."""
    pcapy = _pcapy("any interface")
    try:
        return [str(name) for name in pcapy.findalldevs()]
    except pcapy.PcapError as error:
        raise CaptureUnavailable(f"cannot list the interfaces: {error}") from error


def link_type_name(link_type: int) -> str:
    """The usual name of a libpcap link type, without its prefix; the number where it has none here."""
    return _LINK_NAMES.get(link_type, str(link_type))


def _pcapy(interface: str) -> Any:
    try:
        import pcapy
    except ImportError as error:
        raise CaptureUnavailable(
            f"cannot capture on {interface}: pcapy is not usable here ({error}); "
            f"try: {sys.executable} -m pip install pcapy-ng"
        ) from error
    return pcapy


def _spare_outgoing(handle: Any) -> str | None:
    """Have the kernel not even clone the outgoing copies of packets on Linux's loopback: half the price of the tap.

    It is about the price alone: libpcap itself hands out one of the two copies, and other systems make one only.
    Returns what to tell the person if it cannot be had, as before Linux 4.20.
    """
    if not sys.platform.startswith("linux"):
        return None
    one = ctypes.c_int(1)
    libc = ctypes.CDLL(None)
    if libc.setsockopt(handle.getfd(), _SOL_PACKET, _PACKET_IGNORE_OUTGOING, ctypes.byref(one), 4) == 0:
        return None
    return "this kernel cannot ignore outgoing copies on loopback: capturing costs more than it need"


def _why_not(interface: str, status: int) -> str:
    """The message for a status of ``pcap_activate`` below 0."""
    if status in _NO_PERMISSION:
        return _no_right(interface)
    if status == _NOT_UP:
        return f"cannot capture on {interface}: the interface is not up; try: sudo ip link set {interface} up"
    if status == _NO_SUCH_DEVICE:
        return f"cannot capture on {interface}: no such interface; {_interfaces()}"
    return f"cannot capture on {interface}: libpcap gives error {status} and no reason"


def _in_words(interface: str, text: str) -> str:
    """The message for what libpcap says in text: older ones raise where newer ones return a status."""
    lower = text.lower()
    if "permi" in lower:
        return _no_right(interface)
    if "no such device" in lower:
        return f"cannot capture on {interface}: no such interface; {_interfaces()}"
    return f"cannot capture on {interface}: {' '.join(text.split())}"


def _interfaces() -> str:
    try:
        return f"there are: {', '.join(find_devices())}"
    except CaptureUnavailable:
        return "try: ip link"


def _no_right(interface: str) -> str:
    python = Path(sys.executable).resolve()
    advice = "run it with sudo"
    if sys.platform.startswith("linux"):
        advice += f", or give this Python, and all it runs, the right once: sudo setcap cap_net_raw=ep {python}"
    return f"cannot capture on {interface}: no right to capture packets; {advice}"
