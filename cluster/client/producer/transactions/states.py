"""In which state a producer of transactions takes which call, and where it leads.

::

    NEW --init--> READY --begin--> OPEN --commit--> COMMITTING --> READY
                                    |  \\--abort----> ABORTING ---> READY
                                    |                   ^
                            a batch fails               |
                                    +--> FAILED --abort-+

From each state it comes to FENCED when its coordinator does not know it any more. A call without an
entry is refused. Names of the states in Kafka: ``TransactionManager.State``. In COMMITTING and
ABORTING the decision has no answer yet, so that only the same decision may be asked for again.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """The value says why a call is refused, and what to do."""

    NEW = "call init_transactions first"
    READY = "no transaction is open; call begin_transaction first"
    OPEN = "a transaction is open; commit or abort it first"
    COMMITTING = "a commit has no answer yet; call commit_transaction again"
    FAILED = "a transaction has failed; call abort_transaction first"
    ABORTING = "an abort has no answer yet; call abort_transaction again"
    FENCED = "the producer is fenced"


class Call(Enum):
    """The value is the name of the producer's method."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


CALLED_ONCE: Final = "this producer has its transactional.id already; call it once"
NEXT: Final = {
    (State.NEW, Call.INIT): State.NEW,  # READY with the answer
    (State.READY, Call.BEGIN): State.OPEN,
    (State.OPEN, Call.SEND): State.OPEN,
    (State.OPEN, Call.SEND_OFFSETS): State.OPEN,
    (State.OPEN, Call.COMMIT): State.COMMITTING,
    (State.OPEN, Call.ABORT): State.ABORTING,
    (State.COMMITTING, Call.COMMIT): State.COMMITTING,
    (State.FAILED, Call.ABORT): State.ABORTING,
    (State.ABORTING, Call.ABORT): State.ABORTING,
}
