{{/* What pods of every component share: (list $ "server"). */}}
{{- define "seqserve.pod" -}}
{{- $selector := include "seqserve.selector" . }}
{{- with index . 0 -}}
serviceAccountName: {{ include "seqserve.name" . }}
automountServiceAccountToken: false
# Else a Service named seqserve sets SEQSERVE_PORT to tcp://..., which is no port.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "seqserve.grace" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.pod }}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What containers of every component share. */}}
{{- define "seqserve.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "seqserve.unprivileged" . | nindent 2 }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .Values.preStopSeconds }}}
{{- end }}

{{- define "seqserve.unprivileged" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* Metadata of pods of a component, beside annotations of its own: (list $ "server"). */}}
{{- define "seqserve.podLabels" -}}
{{ include "seqserve.labels" . }}
{{- with (index . 0).Values.pod.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
