"""Releases that tests render: values of the chart, by what they are for."""

from typing import Any

Values = dict[str, Any]

IMAGE: Values = {"image": {"repository": "registry.example.com/seqserve"}}
OPEN: Values = {**IMAGE, "insecure": True}
TLS: Values = {**IMAGE, "tls": {"secret": "certificate"}, "tokens": {"secret": "tokens"}}
MUTUAL: Values = {**IMAGE, "tls": {"secret": "certificate", "clientCa": True}}
LINES = f"{'0' * 64}  generate  web\n"
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}
GATEWAY: Values = {"gateway": {"enabled": True}}
INGRESS: Values = {
    "enabled": True,
    "className": "nginx",
    "host": "translate.example.com",
    "tlsSecret": "web",
    "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
}
SLOTS: Values = {"autoscaling": {"by": "slots", "prometheus": "http://prometheus:9090"}}
MONITORED: Values = {"monitoring": {"enabled": True, "labels": {"release": "monitoring"}}}
EVERYTHING: Values = {
    **MUTUAL,
    **SLOTS,
    **MONITORED,
    "tokens": {"lines": LINES},
    "models": {"claim": "models"},
    "dashboards": {"enabled": True},
    "gateway": {
        "enabled": True,
        "tlsSecret": "listener",
        "caSecret": "authority",
        "serverName": "localhost",
        "clientSecret": "client",
        "token": {"secret": "token", "lend": True},
        "clients": [PEER],
        "options": {"SEQSERVE_MAX_REQUESTS": 64, "SEQSERVE_TIMEOUT_S": 20.5},
        "ingress": INGRESS,
    },
}

RELEASES: dict[str, Values] = {
    "open": OPEN,
    "tls and tokens": TLS,
    "tls and lines of tokens": {**TLS, "tokens": {"lines": LINES}},
    "mutual tls": MUTUAL,
    "mutual tls and tokens": {**MUTUAL, "tokens": {"secret": "tokens"}},
    "encrypted for anybody": {**OPEN, "tls": {"secret": "certificate"}},
    "image by tag": {**OPEN, "image": {"repository": "localhost:5000/a/b", "tag": "1.0-rc1"}},
    "image of a private registry": {**OPEN, "imagePullSecrets": [{"name": "registry"}]},
    "one server": {**OPEN, "replicas": 1},
    "no server": {**OPEN, "replicas": 0},
    "many cores": {**OPEN, "cores": 64, "options": {"SEQSERVE_ENGINE_PROCESSES": 16}},
    "large numbers": {**OPEN, "options": {"SEQSERVE_MAX_MESSAGE_BYTES": 104857600}},
    "every kind of option": {
        **OPEN,
        "options": {
            "SEQSERVE_LOG_FORMAT": "text",
            "SEQSERVE_HOST": "::",
            "SEQSERVE_SLOTS": 128,
            "SEQSERVE_MAX_QUEUE_S": 0.5,
            "SEQSERVE_TRAFFIC": "en-de:2=95,3=5",
            "SEQSERVE_CACHE_MB": 64,
            "SEQSERVE_CALLER_METADATA": "x-forwarded-for",
        },
    },
    "much memory": {**OPEN, "memory": {"versions": 12, "versionMi": 2000}},
    "models of a claim": {**TLS, "models": {"claim": "models"}},
    "models of a container": {
        **TLS,
        "models": {"init": {"image": "models:1", "command": ["cp", "-R", "/m/.", "/models"]}},
    },
    "slow to drain": {**OPEN, "drainSeconds": 600, "preStopSeconds": 15},
    "scaled by cpu": {**OPEN, "autoscaling": {"by": "cpu", "maxReplicas": 20}},
    "scaled by slots": {**OPEN, **SLOTS},
    "no network policy": {**OPEN, "networkPolicy": {"enabled": False}},
    "other namespaces may call": {
        **TLS,
        "networkPolicy": {"clients": [PEER], "monitoring": [PEER]},
    },
    "traced": {
        **TLS,
        "options": {"SEQSERVE_OTLP_ENDPOINT": "http://collector.monitoring.svc:4317"},
        "networkPolicy": {"egress": [{"ports": [{"port": 4317}]}]},
    },
    "half may go": {**OPEN, "disruptionBudget": {"maxUnavailable": "50%"}},
    "monitored": {**OPEN, **MONITORED},
    "dashboards": {**OPEN, "dashboards": {"enabled": True}},
    "gateway": {**OPEN, **GATEWAY},
    "gateway, monitored": {**OPEN, **GATEWAY, **MONITORED},
    "gateway by tls": {**TLS, **GATEWAY},
    "gateway by mutual tls": {**MUTUAL, "gateway": {"enabled": True, "clientSecret": "client"}},
    "gateway and an ingress": {**TLS, "gateway": {"enabled": True, "ingress": INGRESS}},
    "placed": {
        **OPEN,
        "pod": {
            "annotations": {"example.com/team": "language"},
            "labels": {"team": "language"},
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "cpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
        },
    },
    "everything": EVERYTHING,
}
