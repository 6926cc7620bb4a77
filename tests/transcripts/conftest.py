"""No transcript starts a Ray, not even one that asks for an actor by mistake."""

import os

# Ray reads it when it is imported: a call to it is an error now, where it would start a cluster.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
