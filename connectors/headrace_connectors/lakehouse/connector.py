"""What Kafka Connect's REST API calls the plug-in."""

from __future__ import annotations

from headrace import __version__


class LakehouseSinkConnector:
    """The sink connector; the runtime builds its tasks from the configuration."""

    class_name = "headrace.LakehouseSinkConnector"
    version = __version__
