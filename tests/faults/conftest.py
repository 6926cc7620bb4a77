import pytest

from raylog.storage.testing.logs import Disk


@pytest.fixture
def disk() -> Disk:
    return Disk()
