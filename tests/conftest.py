"""What every suite may ask for."""

import pytest
from hypothesis import HealthCheck, settings

from raylog.storage.testing.logs import Disk

# No example fails for being slow: on a busy machine any may be.
settings.register_profile("raylog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raylog")


@pytest.fixture
def disk() -> Disk:
    """A disk in memory, which can lose power."""
    return Disk()
