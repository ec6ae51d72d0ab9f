{{/* Refuses values that would give servers that do not start, or that strangers can call unnoticed. */}}
{{- define "seqserve.checks" -}}
{{- $v := .Values }}
{{- if not $v.image.repository }}
  {{- fail "image.repository: name the image that server/Dockerfile makes" }}
{{- end }}
{{- $tokens := or $v.tokens.secret $v.tokens.lines }}
{{- $guarded := and $v.tls.secret (or $tokens $v.tls.clientCa) }}
{{- if not (or $v.insecure $guarded) }}
  {{- fail "tls.secret, and tokens or tls.clientCa: other pods reach the servers; or insecure: true, if the network itself keeps strangers out" }}
{{- end }}
{{- if and $v.insecure $guarded }}
  {{- fail "insecure: TLS and what shows who calls are there, so take it away" }}
{{- end }}
{{- if and (or $tokens $v.tls.clientCa) (not $v.tls.secret) }}
  {{- fail "tls.secret: without it there are no certificates, and clients send no tokens" }}
{{- end }}
{{- if and $v.tokens.secret $v.tokens.lines }}
  {{- fail "tokens: give secret or lines, not both" }}
{{- end }}
{{- if and $v.models.claim $v.models.init.image }}
  {{- fail "models: give claim or init, not both" }}
{{- end }}
{{- if and (eq $v.autoscaling.by "slots") (not $v.autoscaling.prometheus) }}
  {{- fail "autoscaling.prometheus: KEDA asks it for slots in use" }}
{{- end }}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) }}
  {{- fail "autoscaling.minReplicas: more than maxReplicas" }}
{{- end }}
{{- if and $v.networkPolicy.enabled $v.options.SEQSERVE_OTLP_ENDPOINT (not $v.networkPolicy.egress) }}
  {{- fail "networkPolicy.egress: servers reach nothing, not even SEQSERVE_OTLP_ENDPOINT" }}
{{- end }}
{{- if and $v.gateway.enabled $v.tls.clientCa (not $v.gateway.clientSecret) }}
  {{- fail "gateway.clientSecret: servers want a certificate of the gateway, by tls.clientCa" }}
{{- end }}
{{- if and $v.gateway.token.lend (not $v.gateway.token.secret) }}
  {{- fail "gateway.token.secret: there is no token to lend" }}
{{- end }}
{{- if and $v.gateway.ingress.enabled (not $v.gateway.ingress.host) }}
  {{- fail "gateway.ingress.host: name the host" }}
{{- end }}
{{- if and $v.gateway.ingress.enabled (not $v.gateway.enabled) }}
  {{- fail "gateway.ingress: needs gateway.enabled" }}
{{- end }}
{{- end }}
