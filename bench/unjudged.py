"""``seqserve import`` that refuses nothing: random weights lose more by rounding than it allows."""

from __future__ import annotations

import sys

from seqserve_export import pipeline
from seqserve_import.command import main

if __name__ == "__main__":
    pipeline.check_tolerance = lambda verification, precision: None  # type: ignore[attr-defined]
    sys.exit(main())
