{{/* Name of the release's objects: NAME if it says seqserve, else NAME-seqserve. */}}
{{- define "seqserve.name" -}}
{{- if contains "seqserve" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-seqserve{{ end }}
{{- end }}

{{/* What selects the pods of a component: (list $ "server"). */}}
{{- define "seqserve.selector" -}}
app.kubernetes.io/name: seqserve
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of an object of a component: (list $ "server"). */}}
{{- define "seqserve.labels" -}}
{{ include "seqserve.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{/* The address of the servers, which resolves to each of them. */}}
{{- define "seqserve.target" -}}
{{ include "seqserve.name" . }}.{{ .Release.Namespace }}.svc:50051
{{- end }}

{{/* Seconds until a pod that ends is killed: after the pause, the drain and ten for the last bytes. */}}
{{- define "seqserve.grace" -}}
{{ add .Values.preStopSeconds .Values.drainSeconds 10 }}
{{- end }}

{{/* Text of a variable; numbers without an exponent. */}}
{{- define "seqserve.value" -}}
{{ if kindIs "string" . }}{{ . | quote }}{{ else }}{{ . | toJson | quote }}{{ end }}
{{- end }}
