"""The settings of a Spark session, and what is said when Spark or Java is missing."""

import subprocess
import sys
from typing import Any, cast

import pytest

from raylog.cluster.spark import session as session_function
from raylog.cluster.spark.errors import SparkUnavailable
from raylog.cluster.spark.session import (
    java_version,
    parse_java_version,
    require_spark,
    spark_config,
)

JAVA_OPTIONS = [
    "spark.ray.raydp_app_master.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.driver.extraJavaOptions",
]


@pytest.mark.parametrize("key", JAVA_OPTIONS)
def test_every_jvm_opens_its_packages_and_keeps_what_the_user_adds(key: Any) -> None:
    assert "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED" in spark_config({})[key]
    both = spark_config({key: "-Xss4m"})[key]
    assert both.endswith(" -Xss4m")
    assert "--add-opens" in both


def test_the_users_settings_win() -> None:
    assert spark_config({"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"
    assert (
        spark_config({"spark.sql.shuffle.partitions": "7"})["spark.sql.shuffle.partitions"] == "7"
    )
    assert spark_config({}, cores=4)["spark.sql.shuffle.partitions"] == "8"


def test_workers_import_the_raylog_that_the_driver_imports(monkeypatch: Any) -> None:
    import raylog

    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    first, second = spark_config({})["spark.executorEnv.PYTHONPATH"].split(":")
    assert raylog.__file__.startswith(first)
    assert second == "/elsewhere"


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_381"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -X\nopenjdk version "21-ea" 2023-09-19', 21),
        ("", 0),
        ("command not found", 0),
    ],
)
def test_javas_version_is_read_from_what_it_prints(said: Any, major: Any) -> None:
    assert parse_java_version(said) == major


def test_without_java_the_error_says_what_to_install(monkeypatch: Any, tmp_path: Any) -> None:
    assert java_version({"PATH": str(tmp_path)}) == 0
    assert java_version({"JAVA_HOME": str(tmp_path)}) == 0
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _only_missing(monkeypatch)
    with pytest.raises(
        SparkUnavailable, match=r"Java 17 or newer: found none; install it .*openjdk-17"
    ):
        require_spark()


@pytest.mark.parametrize("missing", ["pyspark", "raydp"])
def test_without_a_package_the_error_names_the_extra_that_brings_it(
    monkeypatch: Any, missing: str
) -> None:
    _only_missing(monkeypatch, missing)
    with pytest.raises(SparkUnavailable, match=rf"{missing}.*pip install '\.\[spark\]'") as raised:
        session_function(cast("Any", None))
    assert "'spark-source'" in str(raised.value)
    assert "register(spark, broker)" in str(raised.value)


def _only_missing(monkeypatch: Any, missing: str = "") -> None:
    """All packages of Spark are there but one."""
    module = sys.modules[require_spark.__module__]
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else object())


def test_importing_the_package_imports_neither_spark_nor_ray() -> None:
    code = (
        "import sys, raylog.cluster.spark; assert not {'pyspark', 'raydp', 'ray'} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
