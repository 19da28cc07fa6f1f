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
{{- if eq .Values.workload "StatefulSet" }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: CONNECT_REST_ADVERTISED_HOST_NAME
  value: $(POD_NAME).{{ include "headrace.fullname" . }}-workers.{{ .Release.Namespace }}.svc
{{- else }}
- name: CONNECT_REST_ADVERTISED_HOST_NAME
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
{{- if .Values.executors.enabled }}
{{- include "headrace.driverEnvironment" . }}
{{- end }}
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
{{- with .Values.extraEnv }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end }}

{{- define "headrace.environmentSources" -}}
{{- if or .Values.existingSecret .Values.extraEnvFrom -}}
envFrom:
  {{- with .Values.existingSecret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- tpl (toYaml .) $ | nindent 2 }}
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
{{- if .Values.executors.enabled }}
- name: executors
  mountPath: /etc/headrace/executors
  readOnly: true
{{- end }}
- name: warehouse
  mountPath: {{ .Values.persistence.mountPath }}
- name: scratch
  mountPath: /scratch
- name: tmp
  mountPath: /tmp
{{- range $volume, $_ := include "headrace.mountedSecrets" . | fromYaml }}
- name: {{ $volume }}
  mountPath: /etc/headrace/{{ $volume }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ tpl (toYaml .) $ }}
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
{{- if .Values.executors.enabled }}
- name: executors
  configMap:
    name: {{ include "headrace.fullname" . }}-executors
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
{{- range $volume, $secret := include "headrace.mountedSecrets" . | fromYaml }}
- name: {{ $volume }}
  secret:
    secretName: {{ $secret }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end }}

{{- define "headrace.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Seconds that a worker may need to stop: its own deadline, and the half minute after which it ends itself. */ -}}
{{- define "headrace.stopSeconds" -}}
{{- $graceful := get (default dict .Values.worker.config) "task.shutdown.graceful.timeout.ms" | default 60000 -}}
{{- add (ceil (divf (toString $graceful | float64) 1000)) 30 -}}
{{- end }}

{{- define "headrace.terminationGracePeriodSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add (include "headrace.stopSeconds" .) 30 -}}
{{- else -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end }}

{{- define "headrace.topologySpreadConstraints" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "headrace.selectorLabels" . | fromYaml)) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints }}
{{- $given := . }}
{{- if not (hasKey . "labelSelector") }}{{ $given = merge (dict) . $selector }}{{ end }}
{{- $constraints = append $constraints $given }}
{{- end -}}
{{- toYaml $constraints -}}
{{- end }}

{{- /* "true" if there is, or may be, more than one worker. */ -}}
{{- define "headrace.several" -}}
{{- if kindIs "invalid" .Values.replicaCount -}}
true
{{- else if gt (int .Values.replicaCount) 1 -}}
true
{{- end -}}
{{- end }}

{{- define "headrace.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicaCount) }}
replicas: {{ .Values.replicaCount }}
{{- end }}
{{- if include "headrace.several" . }}
minReadySeconds: {{ .Values.minReadySeconds }}
{{- end }}
{{- end }}

{{- /* One worker ends before the next one starts, because both would write its volume. Several are replaced one after the
other: a new worker is ready before an old one stops. */ -}}
{{- define "headrace.updateStrategy" -}}
{{- if .Values.updateStrategy -}}
{{- toYaml .Values.updateStrategy -}}
{{- else if eq .Values.workload "StatefulSet" -}}
type: RollingUpdate
{{- else if include "headrace.several" . -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- else -}}
type: Recreate
{{- end -}}
{{- end }}
