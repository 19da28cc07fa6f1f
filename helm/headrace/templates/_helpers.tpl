{{- define "headrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Release and chart name, without repeating headrace. Names of objects have up to 63 letters; suffixes take up to 11. */ -}}
{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "headrace.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "headrace.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Selector of the workers' pods, which excludes the test's pod. */ -}}
{{- define "headrace.selectorLabels" -}}
app.kubernetes.io/name: {{ include "headrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "headrace.labels" -}}
app.kubernetes.io/name: {{ include "headrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The metadata of an object: (list $ "-suffix" (dict of more annotations)). */ -}}
{{- define "headrace.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "headrace.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "headrace.labels" $root | nindent 2 }}
{{- with merge (dict) (index . 2) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "headrace.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "headrace.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "headrace.configMapName" -}}
{{- default (include "headrace.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "headrace.connectorsSecretName" -}}
{{- default (printf "%s-connectors" (include "headrace.fullname" .)) .Values.existingConnectorsSecret }}
{{- end }}

{{- /* "true" if the worker has the folder of connectors: always in standalone mode, in distributed mode unless the
worker's own options name another folder or come from a ConfigMap of the user. An empty folder is mounted as well, so
that the last connector can be removed from the values. */ -}}
{{- define "headrace.mountsConnectors" -}}
{{- if or (eq .Values.mode "standalone") .Values.connectors .Values.existingConnectorsSecret -}}
true
{{- else if not (or .Values.existingConfigMap (get (default dict .Values.worker.config) "connectors.directory")) -}}
true
{{- end }}
{{- end }}

{{- define "headrace.claimName" -}}
{{- default (include "headrace.fullname" .) .Values.persistence.existingClaim }}
{{- end }}

{{- /* The worker's options: defaults from the release's name, then those of the values, which take precedence. */ -}}
{{- define "headrace.workerOptions" -}}
{{- $name := include "headrace.fullname" . -}}
{{- $ours := dict "bootstrap.servers" .Values.kafka.bootstrapServers
      "warehouse" (printf "%s/warehouse" .Values.persistence.mountPath) -}}
{{- if eq .Values.mode "distributed" -}}
{{- $ours = merge $ours (dict "group.id" $name
      "config.storage.topic" (printf "%s-configs" $name)
      "status.storage.topic" (printf "%s-status" $name)) -}}
{{- if include "headrace.mountsConnectors" . -}}
{{- $ours = merge $ours (dict "connectors.directory" "/etc/headrace/connectors" "connectors.directory.empty" "delete") -}}
{{- end -}}
{{- end -}}
{{- with .Values.kafka.securityProtocol }}{{ $_ := set $ours "security.protocol" . }}{{ end -}}
{{- with .Values.kafka.saslMechanism }}{{ $_ := set $ours "sasl.mechanism" . }}{{ end -}}
{{- $ours = merge $ours (include "headrace.restOptions" . | fromYaml) -}}
{{- if .Values.executors.enabled }}{{ $ours = merge $ours (include "headrace.executorOptions" . | fromYaml) }}{{ end -}}
{{- if .Values.kafka.tls.existingSecret -}}
{{- $_ := set $ours "ssl.truststore.location" "/etc/headrace/kafka-tls/ca.crt" -}}
{{- if .Values.kafka.tls.clientCertificate }}{{ $_ := set $ours "ssl.keystore.location" "/etc/headrace/kafka-tls" }}{{ end -}}
{{- end -}}
{{- if .Values.warehouse.tls.existingSecret -}}
{{- $_ := set $ours "jvm.ssl.truststore.location" "/etc/headrace/warehouse-tls/ca.crt" -}}
{{- end -}}
{{- mergeOverwrite $ours (default dict .Values.worker.config) | toYaml }}
{{- end }}

{{- /* A value as text of a properties file. YAML's numbers arrive as floats, and 67108864 must not become 6.7e+07. */ -}}
{{- define "headrace.propertyValue" -}}
{{- $text := toString . -}}
{{- if kindIs "slice" . }}{{ $text = join "," . }}{{ end -}}
{{- if kindIs "float64" . }}{{ if eq . (floor .) }}{{ $text = . | int64 | toString }}{{ end }}{{ end -}}
{{- $text = $text | replace "\\" "\\\\" | replace "\n" "\\n" | replace "\t" "\\t" -}}
{{- if hasPrefix " " $text }}{{ $text = printf "\\%s" $text }}{{ end -}}
{{- $text -}}
{{- end }}

{{- /* Fails for an option that is a map: (list path options). Helm splits a key of --set at each of its dots. */ -}}
{{- define "headrace.checkOptions" -}}
{{- $path := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if kindIs "map" $value }}
{{- $rest := keys $value | sortAlpha | first }}
{{- fail (printf "%s.%s is a map, and options have dots in their names: write --set '%s.%s\\.%s…=…' with a backslash before each dot of the name, or \"%s.%s…\" in a values file" $path $key $path $key $rest $key $rest) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Mebibytes of a Kubernetes quantity (8Gi, 4G, 512Mi) or of a size of the JVM (4g, 512m); (list text default-unit). */ -}}
{{- define "headrace.mebibytes" -}}
{{- $text := index . 0 | toString -}}
{{- $units := dict "ki" 0.0009765625 "mi" 1.0 "gi" 1024.0 "ti" 1048576.0 "k" 0.00095367431640625 "kb" 0.0009765625
      "m" 0.95367431640625 "mb" 1.0 "g" 953.67431640625 "gb" 1024.0 "t" 953674.31640625 "tb" 1048576.0 "" 0.00000095367431640625 -}}
{{- $unit := regexFind "[a-zA-Z]*$" $text | lower -}}
{{- if eq (index . 1) "jvm" }}{{ $unit = get (dict "k" "kb" "m" "mb" "g" "gb" "t" "tb" "" "mb") $unit | default $unit }}{{ end -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units $unit) | floor | int64 -}}
{{- end }}

{{- /* Fails if the parts of the worker's memory exceed the limit of its container. The worker derives its heap and the
memory of changes from the limit; what is set here must leave the others their least. */ -}}
{{- define "headrace.checkMemory" -}}
{{- $config := default dict .Values.worker.config -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- if and $limit (not .Values.existingConfigMap) -}}
{{- $heap := include "headrace.mebibytes" (list (get $config "spark.driver.memory" | default "1g") "jvm") | int64 -}}
{{- $changes := div (get $config "worker.memory.bytes" | default 67108864 | toString | float64 | int64) 1048576 -}}
{{- $indexes := div (get $config "write.index.memory.bytes" | default 134217728 | toString | float64 | int64) 1048576 -}}
{{- $needed := add $heap 1024 512 $indexes (mul 2 $changes) -}}
{{- $available := include "headrace.mebibytes" (list $limit "") | int64 -}}
{{- if gt $needed $available -}}
{{- fail (printf "resources.limits.memory: %s is too small: Spark's heap %d Mi + other memory of its JVM 1024 Mi + Python 512 Mi + key indexes %d Mi + changes and their copies 2 x %d Mi = %d Mi; raise the limit, or lower spark.driver.memory, write.index.memory.bytes or worker.memory.bytes in worker.config" (toString $limit) $heap $indexes $changes $needed) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Fails if Kubernetes would kill a worker that still commits. */ -}}
{{- define "headrace.checkStop" -}}
{{- if not .Values.existingConfigMap -}}
{{- $given := include "headrace.terminationGracePeriodSeconds" . | int -}}
{{- $needed := include "headrace.stopSeconds" . | int -}}
{{- if lt $given $needed -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short: a worker may need %d s to stop (task.shutdown.graceful.timeout.ms + 30 s); raise it, or remove it" $given $needed) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Errors that the schema cannot detect, reported before anything is installed. */ -}}
{{- define "headrace.check" -}}
{{- include "headrace.checkOptions" (list "worker.config" (default dict .Values.worker.config)) }}
{{- include "headrace.checkMemory" . }}
{{- include "headrace.checkStop" . }}
{{- include "headrace.checkRest" . }}
{{- include "headrace.checkExecutors" . }}
{{- range $name, $connector := .Values.connectors }}
{{- include "headrace.checkOptions" (list (printf "connectors.%s.config" $name) $connector.config) }}
{{- end }}
{{- if and .Values.kafka.tls.clientCertificate (not .Values.kafka.tls.existingSecret) }}
{{- fail "kafka.tls.clientCertificate needs kafka.tls.existingSecret: a Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- if and .Values.kafka.tls.existingSecret .Values.existingConfigMap }}
{{- fail "kafka.tls.existingSecret and existingConfigMap cannot be combined: mount the Secret with extraVolumes, and set ssl.* in your ConfigMap" }}
{{- end }}
{{- if and .Values.warehouse.tls.existingSecret .Values.existingConfigMap }}
{{- fail "warehouse.tls.existingSecret and existingConfigMap cannot be combined: mount the Secret with extraVolumes, and set jvm.ssl.truststore.location in your ConfigMap" }}
{{- end }}
{{- if not (or .Values.kafka.bootstrapServers (get (default dict .Values.worker.config) "bootstrap.servers") .Values.existingConfigMap) }}
{{- fail "kafka.bootstrapServers is required: the brokers to connect to first, as host:port" }}
{{- end }}
{{- $files := or .Values.connectors .Values.existingConnectorsSecret }}
{{- if and (eq .Values.mode "distributed") $files (get (default dict .Values.worker.config) "connectors.directory") }}
{{- fail "worker.config.connectors.directory names another folder than that of connectors and existingConnectorsSecret: set only one of them" }}
{{- end }}
{{- if and (eq .Values.mode "distributed") .Values.existingConnectorsKeys }}
{{- fail "existingConnectorsKeys is for mode: standalone; in mode: distributed all keys of existingConnectorsSecret that end in .json or .properties are connectors" }}
{{- end }}
{{- if and (eq .Values.mode "standalone") (not $files) }}
{{- fail "mode: standalone needs connectors: set connectors or existingConnectorsSecret" }}
{{- end }}
{{- if and (eq .Values.mode "standalone") .Values.existingConnectorsSecret (not .Values.existingConnectorsKeys) }}
{{- fail "existingConnectorsKeys is required with existingConnectorsSecret: the keys that contain one connector each" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not (kindIs "invalid" .Values.replicaCount)) }}
{{- fail "autoscaling.enabled needs replicaCount: null: otherwise each helm upgrade would set the number of workers again" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "ingress.enabled needs ingress.hosts: without a host the ingress would take the requests of all hosts" }}
{{- end }}
{{- $alerts := list }}
{{- range .Files.Get "files/alerts.yaml" | fromYamlArray }}{{ $alerts = append $alerts .alert }}{{ end }}
{{- range .Values.prometheusRule.disabled }}
{{- if not (has . $alerts) }}
{{- fail (printf "prometheusRule.disabled: no alert is called %s; the alerts are %s" . (join ", " $alerts)) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.workload "StatefulSet") (eq (get (default dict .Values.updateStrategy) "type") "Recreate") }}
{{- fail "updateStrategy.type: Recreate is for workload: Deployment; a StatefulSet has RollingUpdate and OnDelete" }}
{{- end }}
{{- if and (eq .Values.mode "standalone") (include "headrace.several" .) }}
{{- fail "replicaCount above 1 needs mode: distributed: standalone workers do not share tasks" }}
{{- end }}
{{- if and (include "headrace.several" .) .Values.persistence.enabled (not .Values.persistence.existingClaim) (not (has "ReadWriteMany" .Values.persistence.accessModes)) }}
{{- fail "replicaCount above 1 needs a warehouse that all workers reach: persistence.accessModes [ReadWriteMany], or another catalog" }}
{{- end }}
{{- $warehouse := get (include "headrace.workerOptions" . | fromYaml) "warehouse" }}
{{- if and (include "headrace.several" .) (not .Values.persistence.enabled) (not .Values.existingConfigMap) (hasPrefix (printf "%s/" .Values.persistence.mountPath) $warehouse) }}
{{- fail (printf "replicaCount above 1 needs a warehouse that all workers reach, and %s is an emptyDir of each pod: set worker.config.warehouse and a catalog (spark.sql.catalog.lake.*), or persistence.enabled with accessModes [ReadWriteMany]" $warehouse) }}
{{- end }}
{{- end }}
