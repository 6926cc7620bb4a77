"""Commands about nodes are given until they take effect, one behind the other."""

from pathlib import Path

from raylog.actors.errors import InvalidRequest, NotController
from raylog.cluster.controller.node_states import NodeDescription
from raylog.storage.errors import RaylogError
from tests.soak.history import DRAIN, INFO, OK, START, STOP, UNDRAIN, NodeOrder, Writer, read
from tests.soak.node_orders import NodeOrders


class Broker:
    """It does what it is told to, unless ``error`` or ``waits_for`` says why not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: RaylogError | None = None
        self.waits_for = ""
        self.away: set[str] = set()

    def stop_node(self, node: str) -> NodeDescription:
        return self._answer(f"stop {node}", node)

    def start_node(self, node: str) -> NodeDescription:
        return self._answer(f"start {node}", node)

    def drain_node(self, node: str, *, undo: bool = False) -> NodeDescription:
        return self._answer(f"{'undrain' if undo else 'drain'} {node}", node)

    def _answer(self, asked: str, node: str) -> NodeDescription:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        node_id = None if node in self.away else node
        return NodeDescription(node, node_id, "online", waits_for=self.waits_for)


class Operator:
    """Orders to nodes ``one`` and ``two``, and what the history tells of them."""

    def __init__(self, folder: Path) -> None:
        self.broker, self.ids = Broker(), {"one": "id-1", "two": "id-2"}
        self.orders = NodeOrders(self.broker, self.ids.get, Writer(folder / "orders.history"))
        self._folder = folder

    def told(self) -> list[tuple[str, str, str]]:
        orders = [op for op in read(self._folder) if isinstance(op, NodeOrder)]
        assert all(order.invoked <= order.completed for order in orders)
        return [(order.order, order.node, order.outcome) for order in orders]


def test_a_command_is_given_to_the_node_by_its_id_and_told(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    for order in (STOP, START, DRAIN, UNDRAIN):
        operator.orders.give(order, "two")
        assert operator.orders.obey()
    assert operator.broker.asked == ["stop id-2", "start id-2", "drain id-2", "undrain id-2"]
    assert operator.told() == [(order, "two", OK) for order in (STOP, START, DRAIN, UNDRAIN)]


def test_the_next_command_waits_until_the_first_has_taken_effect(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.orders.give(STOP, "one")
    operator.orders.give(START, "one")
    operator.broker.waits_for = "3 partitions to be closed"
    assert not operator.orders.obey()
    operator.broker.error = NotController("the cluster", "it begins")
    assert not operator.orders.obey()
    assert operator.orders.waiting == "node stop one, node start one"
    operator.broker.error, operator.broker.waits_for = None, ""
    assert operator.orders.obey()
    assert operator.orders.obey()
    assert operator.orders.waiting == ""
    assert operator.told() == [
        (STOP, "one", INFO),
        (STOP, "one", INFO),
        (STOP, "one", OK),
        (START, "one", OK),
    ]


def test_a_node_that_is_away_is_not_stopped_and_is_started_when_it_is_back(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    del operator.ids["one"]
    for order in (STOP, DRAIN, START):
        operator.orders.give(order, "one")
    assert operator.orders.obey()
    assert operator.orders.obey()
    assert not operator.orders.obey()
    assert operator.broker.asked == []
    operator.ids["one"] = "id-3"
    assert operator.orders.obey()
    assert operator.broker.asked == ["start id-3"]


def test_a_node_that_comes_back_meanwhile_is_known_by_its_new_id(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.orders.give(START, "one")
    operator.broker.error = InvalidRequest("node", "id-1", "is not known")
    assert not operator.orders.obey()
    operator.ids["one"], operator.broker.error = "id-3", None
    assert operator.orders.obey()
    assert operator.broker.asked == ["start id-1", "start id-3"]


def test_what_is_ordered_of_a_node_that_is_called_dead_is_not_known_to_be_so(
    tmp_path: Path,
) -> None:
    """Its actors may run. The order is that of a life which is over, so it is not repeated."""
    operator = Operator(tmp_path)
    operator.broker.away.add("id-1")
    operator.orders.give(STOP, "one")
    assert operator.orders.obey()
    assert operator.told() == [(STOP, "one", INFO)]
