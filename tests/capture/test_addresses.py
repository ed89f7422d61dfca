"""Addresses against the standard library's, all 2^128 of them being candidates."""

from __future__ import annotations

import ipaddress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.addresses import address_text, address_words
from ncps_capture.errors import UsageError

EDGES = [0, 1, sg.V4_MAPPED - 1, sg.V4_MAPPED, sg.V4_MAPPED + 2**32 - 1, sg.V4_MAPPED + 2**32, 2**64, 2**128 - 1]
unhurried = settings(deadline=None, max_examples=40)  # a busy machine is no failure
any_number = st.one_of(
    st.integers(0, 2**128 - 1),
    st.sampled_from(EDGES),
    st.integers(0, 2**32 - 1).map(lambda low: sg.V4_MAPPED | low),
)


@pytest.mark.parametrize(
    ("text", "hi", "lo"),
    [
        ("192.0.2.1", 0, sg.V4_MAPPED | 0xC0000201),
        ("::ffff:192.0.2.1", 0, sg.V4_MAPPED | 0xC0000201),
        ("2001:db8::1", 0x20010DB800000000, 1),
        ("::1", 0, 1),
        ("fe80::2%eth0", 0xFE80000000000000, 2),
    ],
)
def test_addresses(text, hi, lo):
    assert address_words(text) == (hi, lo)
    plain = text.partition("%")[0]
    assert address_text(hi, lo, 6) == (f"::ffff:{text}" if text == "192.0.2.1" else plain)
    assert address_words(address_text(hi, lo)) == (hi, lo)


@unhurried
@given(any_number)
@example(EDGES[2])
@example(EDGES[5])
def test_the_standard_library_agrees_on_every_address(number):
    hi, lo = number >> 64, number & (1 << 64) - 1
    address = ipaddress.IPv6Address(number)
    assert address_words(str(address)) == address_words(address.exploded) == (hi, lo)
    for version in (0, 4, 6):
        read = ipaddress.ip_address(address_text(hi, lo, version))
        assert read == (address.ipv4_mapped if address.ipv4_mapped is not None and version != 6 else address)
    # A row gives numpy's numbers, of which a shift would lose the upper half.
    assert address_text(np.uint64(hi), np.uint64(lo)) == address_text(hi, lo)


@unhurried
@given(st.integers(0, 2**32 - 1))
def test_ipv4_is_the_same_address_dotted_and_mapped(number):
    text = str(ipaddress.IPv4Address(number))
    words = address_words(text)
    assert words == (0, sg.V4_MAPPED + number) == address_words(f"::ffff:{text}")
    assert [address_text(*words, version) for version in (0, 4, 6)] == [text, text, f"::ffff:{text}"]


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "1.2.3", "1.2.3.4:80", "1.2.3.256", "01.2.3.4", "10.0.0.0/8", "::g", "[::1]", "1::2::3", " ::1",
     "%eth0", "::1%", "192.0.2.1%eth0"],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        address_words(text)
    said = str(caught.value)
    assert said.startswith(f"cannot read the address {text!r}: ")
    assert "2001:db8::1" in said
    assert caught.value.__suppress_context__
