"""The panels of the dashboards, with what they ask of Prometheus."""

import json
from dataclasses import dataclass
from pathlib import Path

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
# What Grafana puts in place of a variable where nobody has chosen.
VARIABLES = {"$model": ".*", "$instance": ".*", "$form": ".*", "$objective": "0.999"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel, and its queries by legend."""

    board: str
    title: str
    unit: str
    queries: dict[str, str]


def panels(rate_interval: str = "5m") -> list[Panel]:
    """Reads all panels; rates are those over ``rate_interval``."""
    values = {**VARIABLES, "$__rate_interval": rate_interval}

    def filled(query: str) -> str:
        for name, value in values.items():
            query = query.replace(name, value)
        return query

    return [
        Panel(
            board=file.stem,
            title=panel["title"],
            unit=panel["fieldConfig"]["defaults"]["unit"],
            queries={line["legendFormat"]: filled(line["expr"]) for line in panel["targets"]},
        )
        for file in FILES
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]
        if "targets" in panel
    ]
