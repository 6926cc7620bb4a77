"""Every test here runs over both kernels, and builds malformed batches with a right CRC."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import BatchHeader, seal
from raylog.storage.records.layout import HEADER_SIZE, MAGIC

T0 = 1_700_000_000_000

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")


@pytest.fixture(autouse=True, scope="module", params=["compiled", "pure Python"])
def kernel_in_use(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pure Python":
            patch.setattr(kernel, "ops", _kernel_py)
        elif kernel.KERNEL != "compiled":
            pytest.skip("there is no compiled kernel here")
        yield request.param


@pytest.fixture
def batch_of() -> Callable[..., bytearray]:
    """A batch around any bytes in the place of its records; the header may be changed field by
    field."""

    def build(records: bytes, count: int = 1, **fields: int) -> bytearray:
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=max(count - 1, 0),
            base_timestamp=T0,
            max_timestamp=T0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            count=count,
        )
        return seal(bytearray(HEADER_SIZE) + records, header._replace(**fields))

    return build
