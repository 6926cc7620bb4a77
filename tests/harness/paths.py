"""Where things lie: the project's root, its docs, and the files that a real Kafka wrote."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Their provenance stands beside them.
GOLDEN = ROOT / "tests" / "golden"
