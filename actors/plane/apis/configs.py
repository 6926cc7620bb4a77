"""APIs of the configs of topics and brokers.

A resource is a type (2: topic, 4: broker) and a name. AlterConfigs replaces all configs of a
resource; IncrementalAlterConfigs changes single ones (0: set, 1: delete, 2: append, 3: subtract).
Source: ``DescribeConfigs*.json``, ``AlterConfigs*.json``, ``IncrementalAlterConfigs*.json`` of
Kafka 4.3; KIP-133, KIP-226, KIP-339, KIP-569.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

_ALTERED = """
    throttleTimeMs int32
    responses []
        errorCode int16
        errorMessage ?string
        resourceType int8
        resourceName string
"""

DESCRIBE_CONFIGS: Final = Api(
    32,
    "DescribeConfigs",
    first_version=1,
    last_version=4,
    flexible=4,
    request="""
    resources []
        resourceType int8
        resourceName string
        configurationKeys ?[]string
    includeSynonyms bool
    includeDocumentation bool 3+
    """,
    answer="""
    throttleTimeMs int32
    results []
        errorCode int16
        errorMessage ?string
        resourceType int8
        resourceName string
        configs []
            name string
            value ?string
            readOnly bool
            configSource int8 default=-1 ignorable
            isSensitive bool
            synonyms [] ignorable
                name string
                value ?string
                source int8
            configType int8 3+ ignorable
            documentation ?string 3+ ignorable
    """,
)
ALTER_CONFIGS: Final = Api(
    33,
    "AlterConfigs",
    last_version=2,
    flexible=2,
    request="""
    resources []
        resourceType int8
        resourceName string
        configs []
            name string
            value ?string
    validateOnly bool
    """,
    answer=_ALTERED,
)
INCREMENTAL_ALTER_CONFIGS: Final = Api(
    44,
    "IncrementalAlterConfigs",
    last_version=1,
    flexible=1,
    request="""
    resources []
        resourceType int8
        resourceName string
        configs []
            name string
            configOperation int8
            value ?string
    validateOnly bool
    """,
    answer=_ALTERED,
)
