"""A Spark session on Ray, with every setting that RayDP, Java 17 and a Python data source need.

Why each setting is there:

* ``--add-opens`` for the app master, the executors and the driver: RayDP serialises with reflection
  that Java 17 forbids; without them ``stop`` and conversions abort the JVM, seen as "the actor died
  unexpectedly".
* ``PYSPARK_PYTHON``: executors start this interpreter, so that they find pyspark, ray and raylog in
  it.
* ``PYTHONPATH`` of the executors: where this driver found raylog, so that a checkout works as an
  installed wheel does.
* ``shuffle.partitions``: by the number of cores; a stateful stream keeps the number it began with.
* Arrow: the source yields it.

Order matters: the broker (that is, ``ray.init``) first, Spark second; ``stop(spark)`` first,
``ray.shutdown()`` second. RayDP holds one session a process. Idle it costs about 1.3 GB.
"""

import logging
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raylog.cluster.spark.errors import SparkSessionExists, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raylog.cluster.broker import Broker

logger = logging.getLogger("raylog.spark")

HOW_TO_INSTALL = (
    "raylog's extra 'spark' brings it: pip install '.[spark]' in raylog's clone. In a Spark that "
    "you start yourself, which needs the extra 'spark-source' only, call "
    "raylog.spark.register(spark, broker) instead of session()"
)
JAVA_VERSION_MIN = 17  # Spark 4
JAVA_PROBE_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
# Spark's default of 200 makes every micro-batch of a stateful stream 200 tasks and state stores.
SHUFFLE_PARTITIONS_PER_CORE = 2
# What RayDP 1.7 and Spark's Arrow memory reach into by reflection.
OPENED_PACKAGES = (
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.security.action",
    "sun.util.calendar",
)


def session(
    broker: "Broker",
    *,
    app_name: str = "raylog",
    executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "512m",
    config: dict[str, str] | None = None,
) -> "SparkSession":
    """Start Spark on the Ray cluster of ``broker``, with the ``raylog`` source registered for it.

    Each executor takes ``executor_cores`` of Ray's CPUs, and RayDP's master one more. ``config``
    adds Spark settings or replaces those made here (extra Java options are appended). Raises
    SparkUnavailable, SparkSessionExists.
    """
    require_spark()
    import ray
    import raydp
    from pyspark import SparkContext

    if not ray.is_initialized():
        raise SparkUnavailable(
            "a connection to Ray", "call raylog.start() or raylog.connect() first"
        )
    # the public way knows sessions of this thread only
    running = SparkContext._active_spark_context
    if running is not None:
        raise SparkSessionExists(running.appName)
    _warn_of_too_few_cpus(executors * executor_cores + 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        spark = raydp.init_spark(
            app_name,
            executors,
            executor_cores,
            executor_memory,
            configs=spark_config(config or {}, executors * executor_cores),
        )
    except ray.exceptions.ActorAlreadyExistsError as error:
        raise SparkSessionExists(app_name) from error
    spark.sparkContext.setLogLevel("ERROR")
    register(spark, broker)
    return spark


def register(spark: "SparkSession", broker: "Broker") -> None:
    """Make ``format("raylog")`` known to a Spark session, with the broker filled in.

    The session gets the broker's address and namespace, and is the active one of this thread.

    ``session`` has done it. Call it for a Spark that you started yourself, for a session of
    ``newSession``, and in each other thread that writes. The Python workers of Spark must be able
    to import raylog and to reach Ray.
    """
    from raylog.cluster.spark.source import preset

    # Spark looks for the writer in the thread's active session only, and refuses a name that the
    # active session has and this one does not have. createDataFrame is the public call that
    # activates a session.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(preset(broker))


def stop(spark: "SparkSession") -> None:
    """Stop a session that ``session`` made. Call it before ``ray.shutdown()``."""
    import raydp

    master = (
        # RayDP's actor; it ends a little later than the call
        f"{spark.sparkContext.appName}_SPARK_MASTER"
    )
    raydp.stop_spark()
    _wait_until_gone(master)


def _wait_until_gone(actor: str) -> None:
    import ray

    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            ray.get_actor(actor)
        except ValueError:
            return
        time.sleep(0.05)
    logger.warning("Spark's master %s has not ended in %d s", actor, STOP_TIMEOUT_S)


def spark_config(extra: dict[str, str], cores: int = 1) -> dict[str, str]:
    """All settings of a session on that many cores, ``extra`` last."""
    opens = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES)
    java_options = {
        "spark.ray.raydp_app_master.extraJavaOptions": opens,
        "spark.executor.extraJavaOptions": opens,
        "spark.driver.extraJavaOptions": opens,
    }
    settings = {
        "spark.executorEnv.PYTHONPATH": _python_path(),
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS_PER_CORE * cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    appended = {key: f"{java_options[key]} {extra[key]}" for key in java_options if key in extra}
    return java_options | settings | extra | appended


def require_spark() -> None:
    """Raise SparkUnavailable if pyspark, raydp or Java is missing, and say what to install."""
    for package in ("pyspark", "raydp"):
        if find_spec(package) is None:
            raise SparkUnavailable(f"the Python package {package}", HOW_TO_INSTALL)
    version = java_version()
    if version < JAVA_VERSION_MIN:
        found = f"found Java {version}" if version else "found none"
        how = (
            "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or set "
            "JAVA_HOME to it"
        )
        raise SparkUnavailable(f"Java {JAVA_VERSION_MIN} or newer", f"{found}; {how}")


def java_version(environ: dict[str, str] | None = None) -> int:
    """The major version of the Java that Spark would run, 0 if there is none."""
    env: Any = os.environ if environ is None else environ
    home = env.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java") if home else shutil.which("java", path=env.get("PATH"))
    if java is None:
        return 0
    # Prints e.g.: openjdk version "17.0.15" 2025-04-15
    said = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        timeout=JAVA_PROBE_TIMEOUT_S,
        check=False,
    ).stderr
    return parse_java_version(said)


def parse_java_version(said: str) -> int:
    """The major version in what ``java -version`` prints, 0 if it says none.

    Java 8 calls itself 1.8.
    """
    for line in said.splitlines():
        if "version" in line and line.count('"') == 2:
            parts = line.split('"')[1].replace("-", ".").split(".")
            major = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
            return int(major) if major.isdigit() else 0
    return 0


def _warn_of_too_few_cpus(wanted: int) -> None:
    import ray

    have = int(ray.cluster_resources().get("CPU", 0))
    if have < wanted:
        logger.warning(
            "Spark needs %d CPUs of Ray (executors x cores + 1), but the cluster has %d, so Spark "
            "waits. Ask for fewer CPUs, or start Ray with a larger num_cpus (it may exceed the "
            "number of cores)",
            wanted,
            have,
        )


def _python_path() -> str:
    # of raylog/cluster/spark/session.py, by the link's path: what it leads to is no package
    root = str(Path(__file__).absolute().parents[3])
    return os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
