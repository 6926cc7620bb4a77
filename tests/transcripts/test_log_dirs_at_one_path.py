"""A command means the log dir of its record, whatever is reported once that counts."""

from raylog.actors.control import DirReport
from raylog.cluster.controller.commands import LogDirOut
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import begun
from tests.transcripts.controllers import node_a


def test_a_node_that_leaves_while_the_record_of_its_log_dir_is_written_ends_no_controller() -> None:
    """Two log dirs were at one path of node b, one after the other."""
    node = PerfectNode("b", "b1", "b2")
    play = begun(node_a(), node)
    node.dirs.pop("b1")
    node.dirs["b9"] = DirReport(directory_id="b9", path="/b1", state="online")
    play.settle(6_000)
    assert {entry.directory_id for entry in play.desired.dirs_of("b")} == {"b1", "b2", "b9"}
    assert play.asks(LogDirOut(log_dir="/b1")) == ["append: dir b9 offline at b"]
    play.away.add("b")
    play.sees()  # the node is lost before the record is on the disk
    play.appended()
    assert play.desired.dirs["b9"].state == "offline"
