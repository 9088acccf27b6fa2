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

{{- /* Start of the names of everything that belongs to a bundled fleet API. */ -}}
{{- define "muster.fleet" -}}
{{ .Release.Name }}-fleet
{{- end }}

{{- /* The Secret with the control plane's kubeconfig of the fleet API. */ -}}
{{- define "muster.fleet.kubeconfig" -}}
{{- if eq .Values.fleetApi.mode "bundled" -}}
{{ include "muster.fleet" . }}-control-plane
{{- else -}}
{{ .Values.fleet.kubeconfigSecret }}
{{- end -}}
{{- end }}

{{- /* The Secret with the serving certificate of a bundled fleet API. */ -}}
{{- define "muster.fleet.serving" -}}
{{ include "muster.fleet" . }}-{{ ternary "serving" "api-tls" (not (empty .Values.fleetApi.certificates.issuerRef)) }}
{{- end }}

{{- /* Labels of one part of a bundled fleet API: list of the chart's context and the part's name. */ -}}
{{- define "muster.fleet.labels" -}}
{{- $chart := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $chart.Release.Name }}
app.kubernetes.io/version: {{ $chart.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $chart.Release.Service }}
app.kubernetes.io/part-of: muster
{{- end }}

{{- define "muster.fleet.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{- /* An image with a digest, or with a tag. */ -}}
{{- define "muster.fleet.image" -}}
{{- $image := index . 0 -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ index . 1 }}{{ end }}
{{- end }}

{{- /* Where pods of a part of the fleet API run: list of the chart's context and the part's name. */ -}}
{{- define "muster.fleet.placement" -}}
{{- $chart := index . 0 -}}
priorityClassName: {{ include "muster.priorityClass" $chart }}
enableServiceLinks: false
{{- with $chart.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $chart.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $chart.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "muster.fleet.selector" . | nindent 14 }}
      - weight: 50
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels: {{- include "muster.fleet.selector" . | nindent 14 }}
{{- end }}

{{- define "muster.fleet.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* The members of etcd: list of the chart's context and a format of name and host. */ -}}
{{- define "muster.fleet.etcd" -}}
{{- $chart := index . 0 -}}
{{- $format := index . 1 -}}
{{- $service := printf "%s-etcd" (include "muster.fleet" $chart) -}}
{{- $list := list -}}
{{- range $member := until (int $chart.Values.fleetApi.etcd.replicas) -}}
{{- $name := printf "%s-%d" $service $member -}}
{{- $host := printf "%s.%s.%s.svc" $name $service $chart.Release.Namespace -}}
{{- $list = append $list ($format | replace "NAME" $name | replace "HOST" $host) -}}
{{- end -}}
{{ join "," $list }}
{{- end }}

{{- /* What the fleet API asks. The file is plain YAML with words to fill in, so that the end-to-end tests ask exactly as an installation does. */ -}}
{{- define "muster.webhook.configurations" -}}
{{- $webhook := .Values.webhook }}
{{- $bundle := $webhook.caBundle | b64enc }}
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
