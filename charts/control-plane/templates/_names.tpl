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

{{- define "muster.webhook.secret" -}}
{{ .Values.webhook.certificate.secret | default (printf "%s-webhook-tls" .Release.Name) }}
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

{{- /*
The certificate that the chart makes, as a JSON object of base64 texts: the one that is there already, or a new one. All templates of
one rendering see the same.
*/ -}}
{{- define "muster.webhook.made" -}}
{{- if not (hasKey .Release "musterWebhook") -}}
{{- $data := dict -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace (include "muster.webhook.secret" .) -}}
{{- if and $there $there.data (hasKey $there.data "ca.crt") -}}
{{- $data = pick $there.data "ca.crt" "tls.crt" "tls.key" -}}
{{- else -}}
{{- $hosts := include "muster.webhook.hosts" . | fromJsonArray -}}
{{- $ca := genCA (include "muster.webhook.service" .) 3650 -}}
{{- $made := genSignedCert (first $hosts) nil $hosts 3650 $ca -}}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) -}}
{{- end -}}
{{- $_ := set .Release "musterWebhook" $data -}}
{{- end -}}
{{ .Release.musterWebhook | toJson }}
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
