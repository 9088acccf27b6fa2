{{- /* Labels and annotations of a part's pods: list of the chart's context, the part's name, its values, and annotations of the chart's own. */ -}}
{{- define "muster.pod.metadata" -}}
{{- $chart := index . 0 -}}
{{- $part := index . 2 -}}
{{- /* Pods are not replaced because the chart alone is another one. */}}
labels: {{- omit (merge (include "muster.part.labels" (list $chart (index . 1)) | fromYaml) $part.podLabels) "helm.sh/chart" | toYaml | nindent 2 }}
{{- with merge (dict) $part.podAnnotations (index . 3) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Annotations by which a Prometheus without its operator finds a port; none where a monitor of the operator does. */ -}}
{{- define "muster.pod.scraped" -}}
{{- $monitored := or .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- if not $monitored }}
prometheus.io/scrape: "true"
prometheus.io/port: "8080"
{{- else }}{}
{{- end }}
{{- end }}

{{- /*
Who the pods of a part run as and where: list of the chart's context, the part's name, its values and, where no two pods of it may be on one node, a text. What a
part leaves empty is as for the control plane.
*/ -}}
{{- define "muster.pod.placement" -}}
{{- $chart := index . 0 -}}
{{- $part := index . 2 -}}
{{- $selector := include "muster.part.selector" . | fromYaml -}}
priorityClassName: {{ include "muster.priorityClass" $chart }}
# Environment variables of other Services are of no use here, and thousands of them slow a start.
enableServiceLinks: false
{{- with $chart.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $chart.Values.podSecurityContext | nindent 2 }}
{{- with $part.nodeSelector | default $chart.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations | default $chart.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $spread := $part.topologySpreadConstraints | default $chart.Values.topologySpreadConstraints }}
{{- if and (not $spread) (include "muster.production" $chart) }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}{{ $spread = append $spread (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") }}{{ end }}
{{- end }}
{{- with $spread }}
topologySpreadConstraints:
  {{- range . }}
  {{- /* Without a selector the constraint is about the part's own pods. */}}
  - {{ ternary . (merge (dict "labelSelector" (dict "matchLabels" $selector)) .) (hasKey . "labelSelector") | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- $apart := and (gt (len .) 3) (ne (last .) "") }}
{{- $affinity := $part.affinity | default $chart.Values.affinity }}
affinity:
  {{- with $affinity }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if or (not $affinity) (and $apart (not (get $affinity "podAntiAffinity"))) }}
  # On different nodes and in different zones where there are some.
  podAntiAffinity:
    {{- if $apart }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- toYaml $selector | nindent 12 }}
    {{- end }}
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- range $weight, $key := dict "100" "kubernetes.io/hostname" "50" "topology.kubernetes.io/zone" }}
      {{- if not (and $apart (eq $weight "100")) }}
      - weight: {{ $weight }}
        podAffinityTerm:
          topologyKey: {{ $key }}
          labelSelector:
            matchLabels: {{- toYaml $selector | nindent 14 }}
      {{- end }}
      {{- end }}
  {{- end }}
{{- end }}

{{- define "muster.pod.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* A probe: list of what is asked, the chart's own figures, and those of the values. */ -}}
{{- define "muster.pod.probe" -}}
{{ merge (dict) (index . 2) (index . 1) (dict "httpGet" (index . 0)) | toYaml }}
{{- end }}

{{- /*
Environment of a program that connects to APIs: list of the chart's context and the part's values. Names within this cluster are not asked for
from a proxy.
*/ -}}
{{- define "muster.pod.env" -}}
{{- $proxy := (index . 0).Values.proxy -}}
{{- $env := list -}}
{{- if $proxy.httpsProxy -}}
{{- $none := concat (list "localhost" "127.0.0.1" ".svc" (print "." (index . 0).Values.fleetApi.clusterDomain)) $proxy.noProxy | uniq -}}
{{- $env = list (dict "name" "HTTPS_PROXY" "value" $proxy.httpsProxy) (dict "name" "NO_PROXY" "value" (join "," $none)) -}}
{{- end -}}
{{- with concat $env (index . 1).extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
