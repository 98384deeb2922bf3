"""The bytes of headers in stores: those of Kafka Streams 4.4.0, read back as they were written."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.records import Headers, headers_end, pack_headers, unpack_headers
from ks_actors.serdes import STRING
from ks_actors.state.core import CodecWithHeaders, entry_with, headers_of, no_record
from ks_actors.topology import stores

TIME: Final = 1_700_000_000_123
MANY: Final = (
    "b8068c01046830020004683102010468320202046833020304683402040468350205046836020604683702070468380208046839020906683130020a06683131020b06683132"
    "020c06683133020d06683134020e06683135020f0668313602100668313702110668313802120668313902130668323002140668323102150668323202160668323302170668"
    "3234021806683235021906683236021a06683237021b06683238021c06683239021d06683330021e06683331021f066833320220066833330221066833340222066833350223"
    "06683336022406683337022506683338022606683339022706683430022806683431022906683432022a06683433022b06683434022c06683435022d06683436022e06683437"
    "022f06683438023006683439023106683530023206683531023306683532023406683533023506683534023606683535023706683536023806683537023906683538023a0668"
    "3539023b06683630023c06683631023d06683632023e06683633023f066836340240066836350241066836360242066836370243066836380244066836390245"
)
GOLDEN: Final[dict[str, tuple[Headers, str, str]]] = {
    # Printed by HeaderBytes.java: of a value with timestamp, and of an aggregation of a session.
    "none": ((), "000000018bcfe5687b76", "0076"),
    "one": ((("a", b"\1\2"),), "0c0202610401020000018bcfe5687b76", "0c02026104010276"),
    "null": ((("a", None),), "08020261010000018bcfe5687b76", "080202610176"),
    "empty": ((("", b""),), "060200000000018bcfe5687b76", "0602000076"),
    "twice": (
        (("a", b"\1"), ("b", None), ("a", b"\2")),
        "180602610201026201026102020000018bcfe5687b76",
        "1806026102010262010261020276",
    ),
    "umlaut": ((("ä漢😀", b"\xff"),), "1a0212c3a4e6bca2f09f988002ff0000018bcfe5687b76", "1a0212c3a4e6bca2f09f988002ff76"),
    "63": ((("k", b"\7" * 63),), "860102026b7e" + "07" * 63 + "0000018bcfe5687b76", "860102026b7e" + "07" * 63 + "76"),
    "64": ((("k", b"\7" * 64),), "8a0102026b8001" + "07" * 64 + "0000018bcfe5687b76", "8a0102026b8001" + "07" * 64 + "76"),
    "9000": ((("k", b"\7" * 9000),), "dc8c0102026bd08c01" + "07" * 9000 + "0000018bcfe5687b76", "dc8c0102026bd08c01" + "07" * 9000 + "76"),
    "many": (
        tuple((f"h{number}", bytes([number])) for number in range(70)),
        MANY + "0000018bcfe5687b76",
        MANY + "76",
    ),
}
HEADERS: Final = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=300)), max_size=80).map(tuple)


@pytest.mark.parametrize("name", GOLDEN)
def test_values_have_the_bytes_of_kafka_streams(name: str) -> None:
    """Headers, timestamp and value of a key-value or window store; headers and value of a session store."""
    headers, value, aggregation = GOLDEN[name]
    for written, timestamped in ((value, True), (aggregation, False)):
        codec = CodecWithHeaders(stores.key_value("s", STRING, STRING, headers=True), "t", timestamped=timestamped, record_headers=no_record)
        entry = entry_with("v", TIME, headers)
        data = codec.to_engine(codec.raw(entry))
        assert data.hex() == written
        found = codec.entry(codec.from_engine(data))
        assert (found, headers_of(found)) == (("v", TIME if timestamped else 0), headers)


@given(headers=HEADERS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_headers_are_read_as_they_were_written(headers: Headers, before: bytes, after: bytes) -> None:
    """Wherever they are, whatever follows."""
    packed = pack_headers(headers)
    data = before + packed + after
    assert unpack_headers(data, len(before)) == (headers, len(before) + len(packed))
    assert headers_end(data, len(before)) == len(before) + len(packed)


@given(data=st.binary(max_size=40))
def test_other_bytes_are_an_error_or_headers(data: bytes) -> None:
    """Nothing but ValueError is raised, and no place is beyond the end."""
    try:
        headers, end = unpack_headers(data)
    except ValueError:
        return
    assert 0 < end <= len(data)
    assert unpack_headers(pack_headers(headers))[0] == headers


@given(headers=HEADERS.filter(bool), cut=st.integers(1, 1000))
def test_headers_that_are_cut_off_are_an_error(headers: Headers, cut: int) -> None:
    """Wherever they end."""
    packed = pack_headers(headers)
    with pytest.raises(ValueError, match=r"cut off|do not fit"):
        unpack_headers(packed[: -min(cut, len(packed))])
