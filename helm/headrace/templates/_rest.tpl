{{- /* The REST API: its scheme, ports, and the worker's options of security. */ -}}

{{- define "headrace.restScheme" -}}
{{- ternary "https" "http" (not (empty .Values.rest.tls.existingSecret)) -}}
{{- end }}

{{- /* The port of probes and of /metrics, by its name in the container and in the Service. */ -}}
{{- define "headrace.metricsPort" -}}
{{- ternary "admin" "rest-api" .Values.rest.admin.enabled -}}
{{- end }}

{{- define "headrace.metricsScheme" -}}
{{- if .Values.rest.admin.enabled }}http{{ else }}{{ include "headrace.restScheme" . }}{{ end -}}
{{- end }}

{{- define "headrace.restOptions" -}}
{{- $rest := .Values.rest -}}
listeners: {{ include "headrace.restScheme" . }}://:8083
{{- if $rest.tls.existingSecret }}
listeners.https.ssl.keystore.location: /etc/headrace/rest-tls
listeners.https.ssl.truststore.location: /etc/headrace/rest-tls/ca.crt
listeners.https.ssl.client.auth: {{ $rest.tls.clientAuth }}
{{- end }}
{{- if $rest.admin.enabled }}
admin.listeners: http://:{{ $rest.admin.port }}
{{- end }}
{{- if $rest.basicAuth.existingSecret }}
rest.basic.auth.file: /etc/headrace/rest-users/users.properties
{{- with $rest.basicAuth.roles }}
{{- $roles := list }}
{{- range $user, $role := . }}{{ $roles = append $roles (printf "%s:%s" $user $role) }}{{ end }}
rest.basic.auth.roles: {{ join "," $roles | quote }}
{{- end }}
{{- end }}
{{- with $rest.oauth }}
{{- if .issuer }}
rest.oauth.issuer: {{ .issuer | quote }}
rest.oauth.audience: {{ join "," .audience | quote }}
{{- with .roleClaim }}
rest.oauth.role.claim: {{ . | quote }}
{{- end }}
{{- range $role, $values := .roles }}
rest.oauth.roles.{{ $role }}: {{ join "," $values | quote }}
{{- end }}
{{- if .tls.existingSecret }}
rest.oauth.ssl.truststore.location: /etc/headrace/oauth-tls/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- if $rest.anonymousMetrics }}
rest.metrics.anonymous: true
{{- end }}
{{- end }}

{{- /* Secrets with certificates and users, by the name of their volume. The worker reads their files again after
a change, except those of the warehouse, which are Java's. */ -}}
{{- define "headrace.mountedSecrets" -}}
{{- with .Values.rest.tls.existingSecret }}
rest-tls: {{ . }}
{{- end }}
{{- with .Values.rest.basicAuth.existingSecret }}
rest-users: {{ . }}
{{- end }}
{{- with .Values.rest.oauth.tls.existingSecret }}
oauth-tls: {{ . }}
{{- end }}
{{- with .Values.kafka.tls.existingSecret }}
kafka-tls: {{ . }}
{{- end }}
{{- with .Values.warehouse.tls.existingSecret }}
warehouse-tls: {{ . }}
{{- end }}
{{- end }}

{{- define "headrace.checkRest" -}}
{{- $rest := .Values.rest -}}
{{- $config := default dict .Values.worker.config -}}
{{- $used := or $rest.tls.existingSecret $rest.basicAuth.existingSecret $rest.oauth.issuer $rest.admin.enabled $rest.anonymousMetrics -}}
{{- if and $used .Values.existingConfigMap -}}
{{- fail "rest and existingConfigMap cannot be combined: set listeners, admin.listeners and rest.* in your ConfigMap, and mount the Secrets with extraVolumes" -}}
{{- end -}}
{{- if and $rest.tls.existingSecret (hasKey $config "listeners") -}}
{{- fail "rest.tls.existingSecret and worker.config.listeners cannot be combined: set only one of them" -}}
{{- end -}}
{{- if and (ne $rest.tls.clientAuth "none") (not $rest.tls.existingSecret) -}}
{{- fail "rest.tls.clientAuth needs rest.tls.existingSecret: a Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and (eq $rest.tls.clientAuth "required") (not $rest.admin.enabled) -}}
{{- fail "rest.tls.clientAuth: required needs rest.admin.enabled: true, because probes have no certificate" -}}
{{- end -}}
{{- if and $rest.oauth.issuer (not $rest.oauth.audience) -}}
{{- fail "rest.oauth.issuer needs rest.oauth.audience: without it a token for any other service would be valid" -}}
{{- end -}}
{{- if and $rest.tls.existingSecret (include "headrace.several" .) (eq .Values.workload "Deployment") -}}
{{- fail "rest.tls.existingSecret with several workers needs workload: StatefulSet: workers verify each other's certificates, which cannot contain the addresses of a Deployment's pods" -}}
{{- end -}}
{{- end }}
