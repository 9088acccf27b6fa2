{{- /* Name of everything that the chart makes, or its start. */ -}}
{{- define "muster.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- /* What this chart was installed from, with its version: the release workflow notes it in Chart.yaml. */ -}}
{{- define "muster.chart" -}}
{{ index (.Chart.Annotations | default dict) "failover.muster.io/location" | default "charts/agent" }}
{{- end }}

{{- define "muster.labels" -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/part-of" "muster" -}}
{{- $labels = merge (include "muster.selector" . | fromYaml) $labels .Values.commonLabels -}}
{{ toYaml $labels }}
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Of the pods that check an installation. */ -}}
{{- define "muster.check.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-check
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /*
A digest, which no registry can exchange, is used in place of a tag. A repository that names a registry keeps it, unless all images come from
one (global.imageRegistry).
*/ -}}
{{- define "muster.image" -}}
{{- $image := .Values.image -}}
{{- $registry := .Values.global.imageRegistry | default (ternary "" $image.registry (regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository)) -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The pods' PriorityClass. It has no namespace, so that its own name says whose it is. */ -}}
{{- define "muster.priorityClass" -}}
{{ .Values.priorityClass.name | default (printf "%s-%s" (include "muster.fullname" .) .Release.Namespace | trimSuffix "-") }}
{{- end }}

{{- /* The Secret with the bootstrap kubeconfig; empty where the agent does not join by itself. */ -}}
{{- define "muster.bootstrap" -}}
{{- if .Values.fleet.server -}}
{{ include "muster.fullname" . }}-bootstrap
{{- else -}}
{{ .Values.fleet.bootstrapSecret }}
{{- end -}}
{{- end }}

{{- /* A probe: list of what is asked, the chart's own figures, and those of the values. */ -}}
{{- define "muster.probe" -}}
{{ merge (dict) (index . 2) (index . 1) (dict "httpGet" (index . 0)) | toYaml }}
{{- end }}

{{- /*
An object of a file with names to fill in, with the labels of all objects: list of the chart's context and the text. ServiceAccounts get their
annotations.
*/ -}}
{{- define "muster.object" -}}
{{- $chart := index . 0 -}}
{{- $object := index . 1 | replace "NAMESPACE" $chart.Release.Namespace | replace "RELEASE" (include "muster.fullname" $chart) | fromYaml -}}
{{- $_ := set $object.metadata "labels" (include "muster.labels" $chart | fromYaml) -}}
{{- if and (eq $object.kind "ServiceAccount") $chart.Values.serviceAccount.annotations -}}
{{- $_ := set $object.metadata "annotations" $chart.Values.serviceAccount.annotations -}}
{{- end -}}
{{ toYaml $object }}
{{- end }}

{{- /* Where a URL points to: its host and port, without a name, a password and a path. An IPv6 address is in brackets. */ -}}
{{- define "muster.url.authority" -}}
{{- $rest := regexReplaceAll "[/?#].*$" (regexReplaceAll "^[a-z0-9]+://" . "") "" -}}
{{ regexReplaceAll "^.*@" $rest "" }}
{{- end }}

{{- /* The port of a URL: the one that is written in it, or that of its scheme. */ -}}
{{- define "muster.url.port" -}}
{{- $scheme := regexFind "^[a-z0-9]+" . -}}
{{ regexFind ":[0-9]+$" (include "muster.url.authority" .) | trimPrefix ":" | default (get (dict "http" "80" "socks5" "1080") $scheme) | default "443" }}
{{- end }}
