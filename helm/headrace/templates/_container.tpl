{{- /* The worker's container: its arguments, environment and volumes. */ -}}

{{- define "headrace.arguments" -}}
- connect-{{ .Values.mode }}
- --log-level={{ .Values.worker.logLevel }}
- /etc/headrace/worker.properties
{{- if eq .Values.mode "standalone" }}
{{- range .Values.existingConnectorsKeys }}
- /etc/headrace/connectors/{{ . }}
{{- else }}
{{- range $name, $_ := .Values.connectors }}
- /etc/headrace/connectors/{{ $name }}.json
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "headrace.environment" -}}
- name: CONNECT_REST_ADVERTISED_HOST_NAME
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: SPARK_LOCAL_DIRS
  value: /scratch
- name: TMPDIR
  value: /scratch
{{- if and (eq .Values.mode "distributed") .Values.existingConfigMap (include "headrace.mountsConnectors" .) }}
- name: CONNECT_CONNECTORS_DIRECTORY
  value: /etc/headrace/connectors
- name: CONNECT_CONNECTORS_DIRECTORY_EMPTY
  value: delete
{{- end }}
{{- with .Values.kafka.existingSecret }}
- name: CONNECT_SASL_JAAS_CONFIG
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: sasl.jaas.config
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headrace.environmentSources" -}}
{{- if or .Values.existingSecret .Values.envFrom -}}
envFrom:
  {{- with .Values.existingSecret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .Values.envFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "headrace.volumeMounts" -}}
- name: config
  mountPath: /etc/headrace/worker.properties
  subPath: worker.properties
  readOnly: true
{{- if include "headrace.mountsConnectors" . }}
- name: connectors
  mountPath: /etc/headrace/connectors
  readOnly: true
{{- end }}
- name: warehouse
  mountPath: {{ .Values.persistence.mountPath }}
- name: scratch
  mountPath: /scratch
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headrace.volumes" -}}
- name: config
  configMap:
    name: {{ include "headrace.configMapName" . }}
{{- if include "headrace.mountsConnectors" . }}
- name: connectors
  secret:
    secretName: {{ include "headrace.connectorsSecretName" . }}
{{- end }}
- name: warehouse
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "headrace.claimName" . }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: scratch
  emptyDir:
    {{- toYaml .Values.scratch | nindent 4 }}
- name: tmp
  emptyDir:
    {{- toYaml .Values.tmp | nindent 4 }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
