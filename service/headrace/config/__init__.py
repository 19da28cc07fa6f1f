"""Every option of Headrace: names, types, defaults and documentation exist here and nowhere else.

``worker`` lists what a ``worker.properties`` may say, ``connector`` what a connector may say, ``converter`` the options
that a converter takes. REST answers, ``docs/configuration.md`` and the chart's value schema are made from these lists
(``python -m headrace.config``).
"""

from headrace.config.connector import SinkConnectorConfig
from headrace.config.worker import WorkerConfig

__all__ = ["SinkConnectorConfig", "WorkerConfig"]
