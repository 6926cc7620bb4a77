"""What raylog uses of Ray's private modules: all of it is here.

Ray promises nothing of them, so each use says what it does where a version of Ray has not what it
needs. A process that is connected, or is given an address, needs none of it.

=========================================  ===================  ====================================
what                                       Ray has it           without it
=========================================  ===================  ====================================
the addresses of this machine's clusters   2.52 and later       RayNotFound: give the address
the address that ``ray start`` left last   2.52 and later       the clusters are tried by address
tokens, when Ray is imported already       2.52 and later       used only with RAY_AUTH_MODE=token
Ray's messages to a driver, as a function  2.52 and later       Ray prints its paragraphs
where an actor runs now, as the GCS has it 2.52 and later       nobody notices that one is replaced;
                                                                a pid of one that hangs is not told
what Ray's head keeps under a key          2.52 and later       a copy of the metadata that was not
                                                                heard for 9 s does not begin alone
the id of a Ray cluster                    2.52 and later       brokers over copies of one disk are
                                                                not told apart by it
=========================================  ===================  ====================================

``tests/unit/actors/runtime/test_ray_private.py`` names what the installed Ray has not.
"""

import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from importlib import import_module
from typing import Any

import ray

from raylog.actors.errors import RayNotFound
from raylog.actors.messages import ActorProcess

# Each connection would say that tokens are on, which is as it should be.
logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)


def addresses_here() -> Set[str]:
    """The addresses of this machine's Ray clusters. Raises RayNotFound where Ray does not tell."""
    try:
        from ray._private.services import find_gcs_addresses
    except ImportError as error:
        why = (
            f"Ray {ray.__version__} does not say which clusters run on this machine: give the "
            f"address ({error})"
        )
        raise RayNotFound("auto", why) from error
    forget = getattr(find_gcs_addresses, "cache_clear", None)  # versions before it keep nothing
    if forget is not None:
        forget()
    return frozenset(find_gcs_addresses())


def latest_address() -> str | None:
    """The address of the last ``ray start`` on this machine; None where nobody knows."""
    try:
        from ray._private.services import find_bootstrap_address
    except ImportError:
        return None
    address: str | None = find_bootstrap_address(None)
    return address


def process_of(actor: Any) -> ActorProcess | None:
    """Where an actor's process is, by its handle; None where it has none, or nobody knows.

    Ray's head is asked, so this also answers for an actor that hangs.
    """
    node_id, pid = actor_place(actor._actor_id.hex()) or ("", 0)
    return ActorProcess(node_id=node_id, pid=pid) if node_id else None


def turn_tokens_on() -> None:
    """Have this process, and Ray where it starts it, use tokens. See ``tokens.py``.

    Ray has read the environment when it was imported, and may have looked for a token already.
    """
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def actor_place(actor_id: str | None) -> tuple[str, int] | None:
    """The node's id and the process id of an actor that runs; None where Ray does not tell.

    An actor that is being started again runs nowhere: ``("", 0)``.
    """
    try:
        from ray._private.state import actors
    except ImportError:
        return None
    facts: Any = actors(actor_id)
    if not isinstance(facts, Mapping) or not {"State", "Address", "Pid"} <= facts.keys():
        return None
    if facts["State"] != "ALIVE":
        return "", 0
    return str(facts["Address"]["NodeID"]), int(facts["Pid"])


def keep_note(key: str, value: bytes) -> None:
    """Have Ray's head keep a value, until Ray ends. Raises what Ray raises."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, value, overwrite=True)


def notes(prefix: str) -> dict[str, bytes]:
    """What Ray's head keeps under keys that begin so. Raises what Ray raises."""
    from ray.experimental import internal_kv

    found = {}
    for key in internal_kv._internal_kv_list(prefix):
        value = internal_kv._internal_kv_get(key)
        if value is not None:
            found[key.decode()] = value
    return found


def forget_note(key: str) -> None:
    """Fine if Ray's head does not keep it. Raises what Ray raises."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key)


def ray_cluster_id() -> str:
    """The id of the Ray cluster that this process has joined; empty where Ray does not tell."""
    try:
        from ray._private.worker import global_worker

        return str(global_worker.gcs_client.cluster_id.hex())
    except (ImportError, AttributeError):
        return ""


def take_messages(tell: Callable[[str], None]) -> None:
    """Have ``tell`` called with each message of the cluster, which Ray prints in this process else.

    A message has several lines; most are about a worker that died. What workers themselves print
    comes the same way where ``log_to_driver`` is on.
    """
    from ray._private import worker

    def take(data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        for message in data["lines"]:
            tell(message)

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = take
