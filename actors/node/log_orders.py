"""What the Controller orders of the logs, as it is taken in: what is wanted of each.

An order says what shall be. It takes the place of the one before for the same log; what is in
flight for the log ends first. An order that cannot be obeyed, or comes late, changes nothing: the
next report shows it to the Controller.
"""

from raylog.actors.control import Create, End, LogId, Move, Remove, Serve, SetAside
from raylog.actors.node.instructions import Copy, GiveUpCopy, StartLog
from raylog.actors.node.log_book import LogBook
from raylog.actors.node.log_states import NodeLog, Want

LogOrder = Create | Serve | Move | Remove | End | SetAside


class LogOrders:
    """See the module's head."""

    def __init__(self, book: LogBook) -> None:
        self._book = book

    def obey(self, order: LogOrder, report: int) -> None:
        """``report``: the number of the one from which the order was made."""
        is_possible = self._take(order, report)
        if not is_possible:
            self._book.out.note("order-ignored", order=order)
        self._book.touch(order.partition if isinstance(order, SetAside) else order.log.partition)

    def confirm(self, id: LogId) -> None:
        """The Controller has seen how the log is served, and wants it so.

        For a log whose actor was adopted that is as good as an order: when the actor dies, the next
        one need not wait for the Controller.
        """
        log = self._book.logs.get(id)
        if log is not None and isinstance(log.want, Serve) and not log.is_ordered:
            log.is_ordered = True
            self._book.touch(id.partition)

    def _take(self, order: LogOrder, report: int) -> bool:
        """Take it in; returns whether it is possible."""
        match order:
            case Create():
                return self._create(order)
            case Serve() | Move():
                return self._serve(order, report)
            case Remove():
                self._remove(order)
                return True
            case End():
                return self._end(order)
            case SetAside():
                return self._set_aside(order)

    def _create(self, order: Create) -> bool:
        log = self._book.log(order.log)
        if isinstance(log.want, Remove):
            return False
        if not log.folders:
            self._want(log, order)
        return True

    def _serve(self, order: Serve | Move, report: int) -> bool:
        log = self._book.logs.get(order.log)
        if log is None or _is_being_removed(log):
            return False
        if isinstance(order, Move) and report < log.first_report:
            return False
        is_open = self._book.places.is_open(order.directory_id)
        if order.directory_id not in log.folders or not is_open:
            return False
        log.learn_config(order.config, order.config_version)
        log.asides.discard(order.directory_id)
        log.first_report = -1
        self._want(log, order)
        return True

    def _remove(self, order: Remove) -> None:
        log = self._book.logs.get(order.log)
        if log is None:
            return
        log.asides.clear()
        self._want(log, order)
        self._give_up_opening(log)

    def _end(self, order: End) -> bool:
        log = self._book.logs.get(order.log)
        if log is None or isinstance(log.want, Remove):
            return False
        self._want(log, order)
        self._give_up_opening(log)
        return True

    def _give_up_opening(self, log: NodeLog) -> None:
        """An opening may take as long as it likes."""
        doing = log.doing
        if isinstance(doing, StartLog) and self._book.places.takes_orders(doing.directory_id):
            self._book.kill(log.id.partition)

    def _want(self, log: NodeLog, order: Want) -> None:
        if not _is_same(log.want, order):
            log.leave_move()
            if isinstance(log.doing, Copy):
                self._book.out.say(GiveUpCopy(log=log.id, copy_token=log.doing.token))
        log.want, log.is_ordered, log.problem = order, True, None
        log.tried.clear()
        if log.state == "failed":
            log.state = "found"

    def _set_aside(self, order: SetAside) -> bool:
        if order.topic_id is None:
            unnamed = self._book.unnamed.get((order.partition, order.directory_id))
            if unnamed is not None:
                unnamed.is_to_be_aside = True
            return unnamed is not None
        id = LogId(partition=order.partition, topic_id=order.topic_id)
        log = self._book.logs.get(id)
        if log is None or isinstance(log.want, Remove) or _is_in_use(log, order.directory_id):
            return False
        if order.directory_id not in log.folders:
            return False
        log.asides.add(order.directory_id)
        if isinstance(log.want, Create | End) or order.directory_id == log.wanted_dir:
            log.want = None
        if order.directory_id == log.home:  # it has failed
            log.state, log.problem = "found", None
        return True


def _is_same(want: Want | None, order: Want) -> bool:
    """Whether the order repeats what is wanted, but for the config."""
    if isinstance(want, Serve) and isinstance(order, Serve):
        return want.directory_id == order.directory_id
    if isinstance(want, Move) and isinstance(order, Move):
        dirs = want.directory_id, want.target_id
        return dirs == (order.directory_id, order.target_id)
    return type(want) is type(order)


def _is_being_removed(log: NodeLog) -> bool:
    """Whether a log is to be removed, and that has not failed: else the newest order counts."""
    return isinstance(log.want, Remove) and log.state != "failed"


def _is_in_use(log: NodeLog, directory_id: str) -> bool:
    """Whether the log is served from this folder, or will be, or something is in flight for it."""
    if log.doing is not None and log.state != "serving":
        return True
    is_needed = directory_id in (log.home, log.wanted_dir, log.moved_to)
    return is_needed and log.state != "failed"
