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

{{- define "muster.webhook.service" -}}
{{ .Release.Name }}-webhook
{{- end }}

{{- /* The Secret with a certificate that somebody else brings; empty where the control plane makes its own. */ -}}
{{- define "muster.webhook.secret" -}}
{{- if .Values.webhook.certificate.secret -}}
{{ .Values.webhook.certificate.secret }}
{{- else if .Values.webhook.certificate.issuerRef -}}
{{ printf "%s-webhook-tls" .Release.Name }}
{{- end -}}
{{- end }}

{{- /* Every name by which the fleet API's server may know the Service, as a JSON list. */ -}}
{{- define "muster.webhook.hosts" -}}
{{- $service := printf "%s.%s.svc" (include "muster.webhook.service" .) .Release.Namespace -}}
{{- $hosts := list $service (printf "%s.cluster.local" $service) -}}
{{- with .Values.webhook.url -}}
{{- $hosts = append $hosts (regexReplaceAll ":[0-9]+$" (urlParse . | dig "host" "") "") -}}
{{- end -}}
{{ $hosts | uniq | toJson }}
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
