"""A clock that stands still until it is turned."""

# 14 November 2023, 22:13:20 UTC: a round number of seconds that no test confuses with an offset.
T0 = 1_700_000_000_000


class ManualClock:
    """Tells the time that it was set to."""

    def __init__(self, now_ms: int = T0) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def advance(self, by_ms: int) -> None:
        """Turn the clock forward (or back, as wall clocks do)."""
        self.ms += by_ms
