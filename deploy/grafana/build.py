"""Writes the dashboards for Grafana: python deploy/grafana/build.py [FOLDER].

It needs ``grafana-foundation-sdk``; ``make manifests`` has it. The contents are in ``contents.py``.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from contents import DASHBOARDS, Dashboard, Panel
from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# A dashboard is 24 units wide.
WIDTH, GRAPH_HEIGHT, NUMBER_HEIGHT = 24, 8, 4


def built(contents: Dashboard) -> str:
    """Returns a dashboard as JSON."""
    board = (
        builders.Dashboard(contents.title)
        .uid(contents.uid)
        .description(contents.text)
        .tags(["seqserve"])
        .readonly()
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("seqserve")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["seqserve"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(builders.DatasourceVariable("datasource").type("prometheus").label("source"))
    )
    for name, query in contents.choices.items():
        board.with_variable(_choice(name, query))
    for name, values in contents.constants.items():
        board.with_variable(_constant(name, values))
    numbers = count(1)
    for title, panels in contents.rows.items():
        board.with_row(builders.Row(title).id(next(numbers)))
        for panel in panels:
            board.with_panel(_panel(panel, WIDTH // len(panels)).id(next(numbers)))
    return JSONEncoder(indent=2, sort_keys=True).encode(board.build()) + "\n"


def _choice(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _constant(name: str, values: list[str]) -> builders.CustomVariable:
    options = [
        VariableOption(selected=value == values[0], text=value, value=value) for value in values
    ]
    return (
        builders.CustomVariable(name).values(",".join(values)).options(options).current(options[0])
    )


def _panel(contents: Panel, width: int) -> stat.Panel | timeseries.Panel:
    panel = _number(contents) if contents.is_number else _graph(contents)
    panel.title(contents.title).description(contents.text).unit(contents.unit).datasource(SOURCE)
    panel.span(width).height(NUMBER_HEIGHT if contents.is_number else GRAPH_HEIGHT)
    steps = [Threshold(value=None, color="green")]
    if contents.limit is not None:
        steps.append(Threshold(value=contents.limit, color="red"))
    panel.thresholds(builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    for number, (legend, query) in enumerate(contents.lines.items()):
        line = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(65 + number))
        panel.with_target(line.instant() if contents.is_number else line.range())
    return panel


def _number(contents: Panel) -> stat.Panel:
    reduce = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return stat.Panel().reduce_options(reduce).graph_mode(BigValueGraphMode.NONE)


def _graph(contents: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    legend.placement(LegendPlacement.BOTTOM).show_legend(True)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    panel = timeseries.Panel().legend(legend).tooltip(tooltip).min(0)
    if contents.limit is not None:
        style = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    if contents.is_stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
        panel.fill_opacity(20)
    return panel


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for contents in DASHBOARDS:
        (folder / f"{contents.uid}.json").write_text(built(contents), encoding="utf-8")
