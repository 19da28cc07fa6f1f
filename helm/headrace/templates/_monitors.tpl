{{- /* What a ServiceMonitor and a PodMonitor have in common: (list $ values kind). */ -}}
{{- define "headrace.monitor" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- $kind := index . 2 -}}
{{- $https := eq (include "headrace.metricsScheme" $root) "https" -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ $kind }}
metadata:
  name: {{ include "headrace.fullname" $root }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "headrace.labels" $root | nindent 4 }}
    {{- with $values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- if eq $kind "PodMonitor" }}
      {{- include "headrace.selectorLabels" $root | nindent 6 }}
      {{- else }}
      app.kubernetes.io/name: {{ include "headrace.name" $root }}
      app.kubernetes.io/instance: {{ $root.Release.Name }}
      {{- end }}
  {{ ternary "podMetricsEndpoints" "endpoints" (eq $kind "PodMonitor") }}:
    - port: {{ include "headrace.metricsPort" $root }}
      path: /metrics
      interval: {{ $values.interval }}
      scheme: {{ include "headrace.metricsScheme" $root }}
      {{- if or $https $values.tlsConfig }}
      tlsConfig:
        {{- /* The certificate contains the name of the Service, not the address of each pod. */}}
        {{- $ca := dict "secret" (dict "name" $root.Values.rest.tls.existingSecret "key" "ca.crt") }}
        {{- $name := printf "%s.%s.svc" (include "headrace.fullname" $root) $root.Release.Namespace }}
        {{- $ours := ternary (dict "ca" $ca "serverName" $name) dict $https }}
        {{- merge (dict) (default dict $values.tlsConfig) $ours | toYaml | nindent 8 }}
      {{- end }}
      {{- with $values.basicAuth }}
      basicAuth:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.authorization }}
      authorization:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
