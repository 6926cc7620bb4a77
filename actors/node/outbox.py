"""The instructions of a machine: those of this event, and those that are in flight."""

from raylog.actors.node.instructions import Instruction, Note, Work


class Outbox:
    """What is said goes out with the event that is handled; what takes time has a token."""

    def __init__(self) -> None:
        self._said: list[Instruction] = []
        self._last_token = 0
        self.in_flight: dict[int, Work] = {}

    def token(self) -> int:
        """For the next instruction that takes time; each is used once."""
        self._last_token += 1
        return self._last_token

    def work(self, work: Work) -> None:
        """Say something that takes time."""
        assert work.token not in self.in_flight, "a token was used twice"
        self.in_flight[work.token] = work
        self._said.append(work)

    def say(self, instruction: Instruction) -> None:
        """Say something that nobody waits for."""
        self._said.append(instruction)

    def note(self, name: str, **fields: object) -> None:
        self._said.append(Note(name=name, fields=fields))

    def take(self) -> list[Instruction]:
        """Everything that was said since the last call, in order."""
        said, self._said = self._said, []
        return said
