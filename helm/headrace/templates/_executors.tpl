{{- /* Spark's executors in pods: the options of driver and executors, and the pod that Spark completes for each executor. */ -}}

{{- define "headrace.executorOptions" -}}
spark.master: k8s://https://kubernetes.default.svc
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "headrace.image" . | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
spark.kubernetes.executor.podTemplateFile: /etc/headrace/executors/pod.yaml
spark.driver.port: 7078
spark.driver.blockManager.port: 7079
spark.executor.instances: {{ .Values.executors.instances }}
spark.executor.cores: {{ .Values.executors.cores }}
spark.executor.memory: {{ .Values.executors.memory }}
{{- end }}

{{- /* Executors call the driver at the address of its pod, which is as old as the driver itself. The driver's pod owns
them: Kubernetes removes them with it. */ -}}
{{- define "headrace.driverEnvironment" }}
- name: CONNECT_SPARK_DRIVER_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: CONNECT_SPARK_KUBERNETES_DRIVER_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- /* Not the workers' component: Services, budgets and policies of the workers do not select executors. */ -}}
{{- define "headrace.executorLabels" -}}
app.kubernetes.io/name: {{ include "headrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: executor
{{- end }}

{{- define "headrace.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
    {{- with .Values.executors.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) .Values.executors.podAnnotations .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "headrace.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: executor
      command: [python, -m, headrace_connectors.lakehouse.spark_executor]
      {{- with .Values.executors.extraEnv }}
      env:
        {{- tpl (toYaml .) $ | nindent 8 }}
      {{- end }}
      {{- with .Values.executors.existingSecret }}
      envFrom:
        - secretRef:
            name: {{ . }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.containerSecurityContext | nindent 8 }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: tmp
      emptyDir:
        {{- toYaml .Values.tmp | nindent 8 }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" }}
  {{- with get $.Values.executors $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{- define "headrace.checkExecutors" -}}
{{- if .Values.executors.enabled -}}
{{- if .Values.existingConfigMap -}}
{{- fail "executors.enabled and existingConfigMap cannot be combined: set worker.config instead, or spark.master=k8s://... and spark.kubernetes.* in your ConfigMap" -}}
{{- end -}}
{{- $options := include "headrace.workerOptions" . | fromYaml -}}
{{- if not (hasPrefix "k8s://" (get $options "spark.master")) -}}
{{- fail (printf "executors.enabled: worker.config.spark.master is %s, which has no executors in pods: remove one of the two" (get $options "spark.master")) -}}
{{- end -}}
{{- if hasPrefix (printf "%s/" .Values.persistence.mountPath) (get $options "warehouse") -}}
{{- fail (printf "executors.enabled needs a warehouse that executors reach, and %s is in the worker's own volume: set worker.config.warehouse and a catalog (spark.sql.catalog.lake.*)" (get $options "warehouse")) -}}
{{- end -}}
{{- end -}}
{{- end }}
