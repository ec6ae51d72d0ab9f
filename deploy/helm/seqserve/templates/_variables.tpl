{{/* All variables of the server; options come last, so that they may choose other values. */}}
{{- define "seqserve.variables" -}}
SEQSERVE_HOST: {{ .Values.host | quote }}
SEQSERVE_METRICS_HOST: {{ .Values.host | quote }}
SEQSERVE_MODEL_REPOSITORY: /models
SEQSERVE_DRAIN_TIMEOUT_S: {{ .Values.drainSeconds | quote }}
SEQSERVE_INSECURE: {{ .Values.insecure | quote }}
{{- if ne .Values.autoscaling.by "none" }}
# When a connection ends, its client looks for servers that were added.
SEQSERVE_MAX_CONNECTION_AGE_S: 300
{{- end }}
{{- if .Values.tls.secret }}
SEQSERVE_TLS_CERTIFICATE: /secrets/tls/tls.crt
SEQSERVE_TLS_KEY: /secrets/tls/tls.key
{{- end }}
{{- if .Values.tls.clientCa }}
SEQSERVE_TLS_CLIENT_CA: /secrets/tls/ca.crt
{{- end }}
{{- if include "seqserve.tokenSecret" . }}
SEQSERVE_TOKENS: /secrets/tokens/tokens
{{- end }}
{{- with .Values.options }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name of the Secret with the tokens, empty if there are none. */}}
{{- define "seqserve.tokenSecret" -}}
{{- if .Values.tokens.lines }}{{ include "seqserve.name" . }}-tokens{{ else }}{{ .Values.tokens.secret }}{{ end }}
{{- end }}

{{/* MiB of a server: of its fronts, answers, kept answers and versions. docs/deploy.md, Memory and Many cores. */}}
{{- define "seqserve.memoryMi" -}}
{{- $options := .Values.options }}
{{- $answers := $options.SEQSERVE_MAX_ANSWER_MB | default 256 | int }}
{{- $kept := $options.SEQSERVE_CACHE_MB | default 0 | int }}
{{- $cores := .Values.cores | int }}
{{- $fronts := $options.SEQSERVE_FRONT_PROCESSES | default (gt $cores 4 | ternary (min 8 (add 1 (div (sub $cores 2) 3))) 1) | int }}
{{- $processes := $options.SEQSERVE_ENGINE_PROCESSES | default (gt $cores 4 | ternary (div (add $cores 1) 2) 1) | int }}
{{- $versions := mul .Values.memory.versions .Values.memory.versionMi $processes }}
{{- add 48 (mul 80 $fronts) $answers $kept $versions }}
{{- end }}
