"""HTTP in front of servers: `seqserve gateway` and the page of `seqserve playground`."""

from pathlib import Path

RESOURCES = Path(__file__).parent / "resources"
"""Descriptions of the HTTP APIs, comments of the protos, and names of languages."""
PAGE = Path(__file__).parent / "page"
"""The playground."""
