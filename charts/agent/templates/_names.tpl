{{- define "muster.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: muster
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* A tag, or a digest, which no registry can exchange. */ -}}
{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The pods' PriorityClass. It has no namespace, so that its own name says whose it is. */ -}}
{{- define "muster.priorityClass" -}}
{{ .Values.priorityClass.name | default (printf "%s-%s" .Release.Name .Release.Namespace | trimSuffix "-") }}
{{- end }}

{{- /* The Secret with the bootstrap kubeconfig; empty where the agent does not join by itself. */ -}}
{{- define "muster.bootstrap" -}}
{{- if .Values.fleet.server -}}
{{ .Release.Name }}-bootstrap
{{- else -}}
{{ .Values.fleet.bootstrapSecret }}
{{- end -}}
{{- end }}
