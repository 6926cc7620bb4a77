"""APIs of a connection's beginning: what is served, and who asks.

ApiVersions may come before authentication, more than once, in any version, or never. The two Sasl
requests carry the exchange of a mechanism as opaque bytes. Source: ``ApiVersions*.json``,
``Sasl*.json`` of Kafka 4.3; KIP-35, KIP-152, KIP-511, KIP-584.
"""

from typing import Final

from raylog.actors.plane.apis.api import Api

API_VERSIONS: Final = Api(
    18,
    "ApiVersions",
    last_version=4,
    flexible=3,
    request="""
    clientSoftwareName string 3+ ignorable
    clientSoftwareVersion string 3+ ignorable
    """,
    answer="""
    errorCode int16
    apiKeys []
        apiKey int16
        minVersion int16
        maxVersion int16
    throttleTimeMs int32 1+ ignorable
    supportedFeatures [] 3+ tag=0 ignorable
        name string
        minVersion int16
        maxVersion int16
    finalizedFeaturesEpoch int64 3+ tag=1 default=-1 ignorable
    finalizedFeatures [] 3+ tag=2 ignorable
        name string
        maxVersionLevel int16
        minVersionLevel int16
    zkMigrationReady bool 3+ tag=3 ignorable
    """,
)
SASL_HANDSHAKE: Final = Api(
    17,
    "SaslHandshake",
    last_version=1,
    request="mechanism string",
    answer="""
    errorCode int16
    mechanisms []string
    """,
)
SASL_AUTHENTICATE: Final = Api(
    36,
    "SaslAuthenticate",
    last_version=2,
    flexible=2,
    request="authBytes bytes",
    answer="""
    errorCode int16
    errorMessage ?string
    authBytes bytes
    sessionLifetimeMs int64 1+ ignorable
    """,
)
