"""What every suite may ask for."""

import pytest

from raylog.storage.testing.logs import Disk


@pytest.fixture
def disk() -> Disk:
    """A disk in memory, which can lose power."""
    return Disk()
