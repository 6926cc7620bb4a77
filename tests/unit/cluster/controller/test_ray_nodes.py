"""Which nodes take part, and what the machine is told of them."""

from raylog.actors.runtime.names import Node
from raylog.cluster.controller.events import NodesSeen, Silent
from raylog.cluster.controller.ray_nodes import NodeWatch, members


def test_of_several_nodes_with_one_label_one_takes_part_and_the_others_tell_why() -> None:
    first, second = Node("1", "disk", is_alone=False), Node("2", "disk", is_alone=False)
    other = Node("3")
    chosen, problems = members([first, second, other], {})
    assert chosen == {"disk": first, "3": other}
    assert list(problems) == ["2"]
    assert "raylog/log-node=disk" in problems["2"]


def test_the_node_that_is_in_use_stays_when_another_one_gets_its_label() -> None:
    first, second = Node("1", "disk", is_alone=False), Node("2", "disk", is_alone=False)
    chosen, problems = members([first, second], {"disk": second})
    assert chosen == {"disk": second}
    assert list(problems) == ["1"]


def test_a_node_without_an_actor_of_its_log_managers_name_is_silent() -> None:
    events: list[NodesSeen | Silent] = []
    watch = NodeWatch("test", events.append)
    watch.see([Node("1", "disk"), Node("2")], ["LogManager:disk", "Log:t-0"])
    actors = frozenset({"LogManager:disk", "Log:t-0"})
    seen = NodesSeen(nodes={"disk": "1", "2": "2"}, actors=actors)
    assert events == [seen, Silent(node="2")]
    assert watch.node("disk") == Node("1", "disk")
    watch.see([Node("4", "disk")], ["LogManager:disk"])
    assert events[2:] == [NodesSeen(nodes={"disk": "4"}, actors=frozenset({"LogManager:disk"}))]
    assert watch.node("2") is None
