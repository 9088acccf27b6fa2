{{- /* Whether the control plane answers: what the values say, or with a bundled fleet API. */ -}}
{{- define "muster.webhook.enabled" -}}
{{- if kindIs "bool" .Values.webhook.enabled | ternary .Values.webhook.enabled (eq .Values.fleetApi.mode "bundled") }}true{{ end -}}
{{- end }}

{{- define "muster.webhook.service" -}}
{{ include "muster.fullname" . }}-webhook
{{- end }}

{{- /* The Secret with a certificate that somebody else brings; empty where the control plane makes its own. */ -}}
{{- define "muster.webhook.secret" -}}
{{- if .Values.webhook.certificate.secret -}}
{{ .Values.webhook.certificate.secret }}
{{- else if .Values.webhook.certificate.issuerRef -}}
{{ printf "%s-webhook-tls" (include "muster.fullname" .) }}
{{- end -}}
{{- end }}

{{- /* Every name by which the fleet API's server may know the Service, as a JSON list. */ -}}
{{- define "muster.webhook.hosts" -}}
{{- $service := printf "%s.%s.svc" (include "muster.webhook.service" .) .Release.Namespace -}}
{{- $hosts := list $service (printf "%s.%s" $service .Values.fleetApi.clusterDomain) -}}
{{- with .Values.webhook.url -}}
{{- $hosts = append $hosts (include "muster.url.host" .) -}}
{{- end -}}
{{ $hosts | uniq | toJson }}
{{- end }}

{{- /* What the fleet API asks. The file is plain YAML with words to fill in, so that the end-to-end tests ask exactly as an installation does. */ -}}
{{- define "muster.webhook.configurations" -}}
{{- $webhook := .Values.webhook }}
{{- $bundle := $webhook.caBundle | b64enc }}
{{- if and (eq .Values.fleetApi.mode "bundled") (not (include "muster.webhook.secret" .)) }}
{{- /* The control plane makes the certificate, and writes its authority only where none is applied here. */}}
{{- $bundle = "" }}
{{- end }}
{{- if and (not $bundle) (include "muster.webhook.secret" .) }}
{{- fail "webhook.caBundle is missing: the fleet API has to know the authority of the certificate that you bring (--set-file webhook.caBundle=FILE with ca.crt of its Secret)" }}
{{- end }}
{{- $service := printf "https://%s.%s.svc:443" (include "muster.webhook.service" .) .Release.Namespace }}
{{- $url := $webhook.url | default $service | trimSuffix "/" }}
{{- $exempt := printf "['%s']" (join "', '" $webhook.exempt) }}
{{- range $text := splitList "\n---\n" (.Files.Get "access/webhooks.yaml") }}
{{- $configuration := $text | replace "EXEMPT" $exempt | fromYaml }}
{{- range $entry := $configuration.webhooks }}
{{- $path := trimPrefix "URL" $entry.clientConfig.url }}
{{- $client := dict "url" (print $url $path) }}
{{- if $webhook.inCluster }}
{{- $client = dict "service" (dict "name" (include "muster.webhook.service" $) "namespace" $.Release.Namespace "port" 443 "path" $path) }}
{{- end }}
{{- /* Without a bundle the control plane names the authority of the certificate that it makes. */}}
{{- with $bundle }}{{ $_ := set $client "caBundle" . }}{{ end }}
{{- $_ := set $entry "clientConfig" $client }}
{{- $_ := set $entry "timeoutSeconds" ($webhook.timeoutSeconds | int) }}
{{- if eq $entry.failurePolicy "Fail" }}
{{- $_ := set $entry "failurePolicy" $webhook.failurePolicy }}
{{- end }}
{{- end }}
---
{{ toYaml $configuration }}
{{- end }}
{{- end }}
