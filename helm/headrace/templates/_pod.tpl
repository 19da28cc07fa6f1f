{{- /* The template of the workers' pods, the same in a Deployment and a StatefulSet. */ -}}

{{- define "headrace.podTemplate" -}}
metadata:
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
    app.kubernetes.io/component: worker
    {{- with .Values.podLabels }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  annotations:
    {{- include "headrace.checksums" . | nindent 4 }}
    {{- with merge (dict) .Values.podAnnotations .Values.commonAnnotations }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "headrace.serviceAccountName" . }}
  automountServiceAccountToken: {{ or .Values.executors.enabled .Values.serviceAccount.automountServiceAccountToken }}
  {{- /* A Service called connect would otherwise put CONNECT_* variables into the pod. */}}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "headrace.terminationGracePeriodSeconds" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  containers:
    - name: headrace
      image: {{ include "headrace.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "headrace.arguments" . | nindent 8 }}
      env:
        {{- include "headrace.environment" . | nindent 8 }}
      {{- with include "headrace.environmentSources" . }}
      {{- . | nindent 6 }}
      {{- end }}
      ports:
        - name: rest-api
          containerPort: 8083
          protocol: TCP
        {{- if .Values.rest.admin.enabled }}
        - name: admin
          containerPort: {{ .Values.rest.admin.port }}
          protocol: TCP
        {{- end }}
        {{- if .Values.executors.enabled }}
        - name: spark-driver
          containerPort: 7078
          protocol: TCP
        - name: spark-blocks
          containerPort: 7079
          protocol: TCP
        {{- end }}
      {{- range $probe, $path := dict "startupProbe" "live" "livenessProbe" "live" "readinessProbe" "ready" }}
      {{- with get $.Values $probe }}
      {{ $probe }}:
        {{- include "headrace.probe" (list $ . $path) | nindent 8 }}
      {{- end }}
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.containerSecurityContext | nindent 8 }}
      volumeMounts:
        {{- include "headrace.volumeMounts" . | nindent 8 }}
    {{- with .Values.sidecars }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "headrace.volumes" . | nindent 4 }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" }}
  {{- with get $.Values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- include "headrace.topologySpreadConstraints" . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* A probe: (list $ values path). Without a handler in the values, it is a GET of /health/<path> at the admin listener
if there is one, because it has no client certificate, and else at the REST API. */ -}}
{{- define "headrace.probe" -}}
{{- $root := index . 0 -}}
{{- $probe := deepCopy (index . 1) -}}
{{- if not (or $probe.httpGet $probe.exec $probe.tcpSocket $probe.grpc) -}}
{{- $get := dict "path" (printf "/health/%s" (index . 2)) "port" (include "headrace.metricsPort" $root) -}}
{{- $_ := set $get "scheme" (include "headrace.metricsScheme" $root | upper) -}}
{{- $_ := set $probe "httpGet" $get -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end }}
