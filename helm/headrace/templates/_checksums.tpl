{{- /* What replaces the pods when it changes: what the worker reads only when it starts. */ -}}

{{- /* The names of your Secrets in the worker's environment, of the warehouse's authorities, and of the Secret of
connectors of a standalone worker, in lines. Users of the REST API and other certificates are no part of them: the worker
reads their files again. */ -}}
{{- define "headrace.secretsOfTheStart" -}}
{{- with .Values.existingSecret }}{{ . }}
{{ end }}
{{- with .Values.kafka.existingSecret }}{{ . }}
{{ end }}
{{- with .Values.warehouse.tls.existingSecret }}{{ . }}
{{ end }}
{{- if eq .Values.mode "standalone" }}{{ with .Values.existingConnectorsSecret }}{{ . }}
{{ end }}{{ end }}
{{- range tpl (toYaml .Values.extraEnv) . | fromYamlArray }}{{ with dig "valueFrom" "secretKeyRef" "name" "" . }}{{ . }}
{{ end }}{{ end }}
{{- range tpl (toYaml .Values.extraEnvFrom) . | fromYamlArray }}{{ with dig "secretRef" "name" "" . }}{{ . }}
{{ end }}{{ end }}
{{- end }}

{{- /* The data of your Secrets and ConfigMap of the start as Kubernetes has them now, empty where Helm only renders. */ -}}
{{- define "headrace.existingData" -}}
{{- if .Values.rollOnSecretChange -}}
{{- $found := dict -}}
{{- range include "headrace.secretsOfTheStart" . | splitList "\n" | compact | uniq -}}
{{- with lookup "v1" "Secret" $.Release.Namespace . }}{{ $_ := set $found .metadata.name .data }}{{ end -}}
{{- end -}}
{{- with .Values.existingConfigMap -}}
{{- with lookup "v1" "ConfigMap" $.Release.Namespace . }}{{ $_ := set $found "existingConfigMap" .data }}{{ end -}}
{{- end -}}
{{- if $found }}{{ toJson $found }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* A changed configuration replaces the pod, because the worker reads its files once. In distributed mode it follows
the files of connectors. */ -}}
{{- define "headrace.checksums" -}}
{{- $once := ternary .Values.connectors dict (eq .Values.mode "standalone") -}}
{{- $executors := "" -}}
{{- if .Values.executors.enabled }}{{ $executors = include "headrace.executorPod" . }}{{ end -}}
checksum/config: {{ list (include "headrace.workerOptions" .) (toJson $once) $executors | join "" | sha256sum }}
{{- with include "headrace.existingData" . }}
checksum/existing: {{ sha256sum . }}
{{- end }}
{{- end }}
