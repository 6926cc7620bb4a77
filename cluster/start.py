"""Start a broker on a Ray cluster, or connect to the one that runs there.

Either gives a :class:`~raylog.cluster.broker.Broker`, the object that users have. Users call both
as ``raylog.start`` and ``raylog.connect``.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from raylog.actors.errors import (
    BrokerNotFound,
    BrokerRunning,
    MetadataIncomplete,
    MetadataInDoubt,
    OlderMetadata,
)
from raylog.actors.node.broker_config import (
    BrokerConfig,
    absolute_log_dirs_variable,
    log_dirs_of_environment,
    names_log_dirs,
)
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, WORK_TIMEOUT_S
from raylog.actors.runtime.clusters import (
    is_connected,
    join_or_start_ray,
    join_ray_with,
    leave_ray,
    own_address,
    starts_ray,
)
from raylog.actors.runtime.handles import create, kill
from raylog.actors.runtime.names import CONTROLLER, NAMESPACE
from raylog.cluster.broker import Broker
from raylog.cluster.config_file import different, read_config_file
from raylog.cluster.controller.stub import ControllerStub, find_controller
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)


def start(
    log_dirs: Sequence[str] | None = None,
    *,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    address: str | None = None,
    namespace: str = NAMESPACE,
    ray_options: Mapping[str, Any] | None = None,
    new_cluster: bool = False,
    older_metadata: bool = False,
) -> Broker:
    """Start a broker and return when it serves.

    Joins the Ray cluster that this process is connected to, or the one at ``address`` or
    RAY_ADDRESS; without them, or where they say "local", it starts Ray on this machine
    (``ray_options`` go to ``ray.init``) and :meth:`Broker.stop` ends it again.

    ``log_dirs``: folders for partitions, on every node alike, made if missing (their parents must
    exist). A node can have its own in the environment variable RAYLOG_LOG_DIRS of its ``ray
    start``: absolute paths. Else a relative path is below this process's working directory, also in
    this process's own RAYLOG_LOG_DIRS. ``config``: Kafka's broker keys (docs/CONFIG.md), or a YAML
    file of them. ``namespace``: one broker a namespace.

    On a Ray cluster over disks that hold a raylog cluster already it goes on with that one,
    whichever node asks. A new cluster begins only where nothing speaks of an older one.
    ``new_cluster``: also where log dirs belong to a cluster whose metadata is lost, or a log dir
    cannot be read. Topics are unknown then; the folders of their partitions are set aside.
    ``older_metadata``: go on with metadata from the past, where the newer one is lost for good.
    What it does not know is set aside.

    Raises InvalidConfig, InvalidLogDir, LogLocked, MetadataMissing, MetadataUnreadable,
    MetadataInDoubt, MetadataIncomplete, OlderMetadata, NewerMetadata, InconsistentClusterId,
    SeveralClusters, BrokerRunning, RayNotFound, RayNotStarted, TokenNotMade, DuplicateLogDir;
    nothing is left running then.
    """
    settings = (
        read_config_file(config) if isinstance(config, str | os.PathLike) else dict(config or {})
    )
    if log_dirs is not None:
        settings["log.dirs"] = [log_dirs] if isinstance(log_dirs, str) else list(log_dirs)
    if not names_log_dirs(settings):
        settings["log.dirs"] = list(log_dirs_of_environment())
        if not settings["log.dirs"]:
            raise InvalidConfig("log.dirs", None, "give at least one folder for partitions")
    settings["log.dirs"] = different(BrokerConfig.parse(settings).log_dirs)
    parsed = BrokerConfig.parse(settings)
    # A Ray that is started here inherits this process's variable; another has its own.
    with absolute_log_dirs_variable() if starts_ray(address) else nullcontext():
        owns_ray = join_or_start_ray(address, ray_options)
    try:
        if find_controller(namespace) is not None:
            raise BrokerRunning(namespace)
        _start_controller(namespace, parsed, new_cluster=new_cluster, older_metadata=older_metadata)
    except BaseException:
        if owns_ray:
            leave_ray()
        raise
    return Broker(namespace, own_address(), is_starter=True, owns_ray=owns_ray)


def _start_controller(
    namespace: str, config: BrokerConfig, *, new_cluster: bool, older_metadata: bool
) -> None:
    # Whoever only connects, as each of Spark's processes does, needs none of it.
    from raylog.cluster.controller.controller_actor import Controller
    from raylog.cluster.controller.placing import find_node

    try:
        node, home = find_node(
            namespace, config, new_cluster=new_cluster, older_metadata=older_metadata
        )
    except (MetadataInDoubt, MetadataIncomplete, OlderMetadata):
        # Another start may have changed the log dirs while they were looked at.
        if find_controller(namespace) is not None:
            raise BrokerRunning(namespace) from None
        raise
    handle = create(
        Controller, CONTROLLER, namespace, node, namespace, config, random_id(), is_bound=False
    )
    controller = ControllerStub(handle)
    try:
        started = controller.start(home, new_cluster=new_cluster, older_metadata=older_metadata)
        started.get(WORK_TIMEOUT_S)
    except BrokerRunning:
        raise  # somebody else's, started at the same time
    except BaseException:  # KeyboardInterrupt, too: what is half started is not left to itself
        try:
            controller.shutdown().get(OPEN_TIMEOUT_S)
        except RaylogError as error:
            logger.warning(
                "the broker did not start, and its parts did not stop in order: %s", error
            )
        finally:
            kill(CONTROLLER, namespace)
        raise


def connect(address: str | None = None, namespace: str = NAMESPACE) -> Broker:
    """The broker that runs in ``namespace``; from any driver, task or actor.

    Looks in the Ray cluster that this process is connected to, or at ``address``, or in
    RAY_ADDRESS; without any in all Ray clusters of this machine. Raises BrokerNotFound,
    RayNotFound, SeveralBrokers.
    """
    if is_connected():
        if find_controller(namespace) is None:
            raise BrokerNotFound(namespace)
    else:
        join_ray_with(lambda: find_controller(namespace) is not None, namespace, address)
    return Broker(namespace, own_address())
